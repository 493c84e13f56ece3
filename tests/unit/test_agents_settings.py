"""The settings of several agents, and of who talks to whom."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import ConfigurationError
from shared.settings import RoutingRule
from tests.support.environment import load
from workers.agents.named import NO_LINE, NO_MODEL, NO_URL, check_name

pytestmark = pytest.mark.usefixtures("nothing_set")


def test_agents_and_rules_come_from_the_environment_and_keep_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(
        monkeypatch,
        AGENTS__HELPER__AGENT="llm",
        AGENTS__HELPER__LLM__MODEL="m1",
        AGENTS__HELPER__LLM__MODELS="m2,m3",
        AGENTS__HELPER__LLM__API_KEY="canary-7f3a9c",
        ROUTING='[{"platform": "telegram", "chat": -100, "agent": "helper"}]',
    )
    named = loaded.for_agent("helper")
    assert (named.agent, named.llm.model, named.llm.models) == ("llm", "m1", ("m2", "m3"))
    assert loaded.routing == (RoutingRule(platform="telegram", chat="-100", agent="helper"),)
    assert loaded.for_agent("main") is loaded and loaded.llm.model is None
    assert "canary" not in repr(loaded) and "canary-7f3a9c" in loaded.secret_values()


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"ROUTING": '[{"agent": "nobody"}]'}, "not one of AGENTS"),
        ({"ROUTING": '[{"agent": "main", "user_name": "Ann"}]'}, "user_name of KEYTURN_ROUTING"),
        ({"AGENTS": '{"main": {"agent": "echo"}}'}, "cannot be a name"),
        ({"AGENTS": '{"a b": {"agent": "echo"}}'}, "cannot be a name"),
        ({"AGENTS__HELPER__NOPE": "x"}, "KEYTURN_AGENTS__HELPER__NOPE"),
    ],
)
def test_rules_and_agents_that_cannot_work_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(monkeypatch, **variables)


@pytest.mark.parametrize(
    ("agent", "settings", "fault"),
    [
        ("echo", {}, None),
        ("command", {}, NO_LINE),
        ("command", {"COMMAND__LINE": "python3 mybot.py"}, None),
        ("http", {}, NO_URL),
        ("http", {"HTTP__URL": "https://agent.example.org/turns"}, None),
        ("llm", {}, NO_MODEL),
        ("llm", {"LLM__MODEL": "openai:gpt-5"}, None),
        ("tests.support.agents:speak_twice", {}, None),
        ("no_such_module:agent", {}, "AGENT=no_such_module:agent: No module named 'no_such_module'"),
        ("ecko", {}, "AGENT=ecko: not a known agent; use echo, llm, local, command, http or module:object"),
    ],
)
def test_an_agent_that_can_never_start_is_refused_by_its_name_and_settings(
    monkeypatch: pytest.MonkeyPatch, agent: str, settings: dict[str, str], fault: str | None
) -> None:
    loaded = load(monkeypatch, **settings)
    if fault is None:
        check_name(agent, loaded)
        return
    with pytest.raises(ConfigurationError) as refused:
        check_name(agent, loaded)
    assert str(refused.value) == fault

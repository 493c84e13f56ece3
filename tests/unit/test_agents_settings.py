"""The settings of several agents, and of who talks to whom."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import ConfigurationError
from shared.settings import RoutingRule
from tests.support.environment import load

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

"""Which model is asked for what, and how its server is reached."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from shared.errors import ConfigurationError, Outage
from shared.messages import Entry
from shared.settings import LlmSettings
from tests.support.openai import KEY, Trouble, open_provider
from workers.agents.llm import LlmAgent
from workers.agents.model.choice import open_model
from workers.agents.openai_format.client import ChatCompletions, ModelServer

PROXY = "http://proxy.example:3128"


def server_of(**settings: Any) -> ModelServer:
    model = open_model(LlmSettings(**{"model": "m", **settings}))
    assert isinstance(model, ChatCompletions)
    return model._server


@pytest.fixture(autouse=True)
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, PROXY)
    monkeypatch.setenv("no_proxy", "near.example")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://models.example/v1", PROXY),
        ("http://models.example/v1", PROXY),
        ("https://near.example/v1", None),
        ("http://127.0.0.1:1/v1", None),
        ("http://localhost:1/v1", None),
        ("http://[::1]:1/v1", None),
    ],
)
def test_the_environments_proxy_is_used_but_for_this_machine_and_what_it_excepts(url: str, proxy: str | None) -> None:
    assert server_of(base_url=url).proxy == proxy


def test_a_server_is_asked_with_the_settings_and_without_a_key_where_there_is_none() -> None:
    server = server_of(base_url="http://localhost:1/v1", timeout_seconds=7, max_output_tokens=9)
    assert (server.silent_seconds, server.max_output_tokens, server.key.get_secret_value()) == (7, 9, "none")
    assert server.form.provider == "openai-compatible" and server.form.always_field == ""
    assert server.form.limit_field == "max_completion_tokens"
    keyed = server_of(base_url="http://localhost:1/v1", api_key=SecretStr(KEY))
    assert keyed.key.get_secret_value() == KEY and keyed.max_output_tokens is None


def test_a_missing_key_is_named_as_the_setting_that_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match=r"openai:gpt-5: set LLM__API_KEY, or .*OPENAI_API_KEY"):
        open_model(LlmSettings(model="openai:gpt-5"))


HELLO = [Entry("user", "hello")]


async def test_a_question_aside_goes_to_the_model_that_is_kept_for_it() -> None:
    async with open_provider() as provider:
        settings = LlmSettings(model="m", base_url=provider.url, api_key=SecretStr(KEY), aside_model="small")
        answer = await LlmAgent(settings).ask(HELLO, "Answer.")
        assert (answer.text, answer.instead_of) == ("heard: hello", "")
        await LlmAgent(settings.model_copy(update={"aside_model": None})).ask(HELLO, "Answer.")
    assert [asked.body["model"] for asked in provider.requests] == ["small", "m"]
    assert provider.requests[0].messages[0] == ("system", "Answer.")


async def test_a_model_kept_for_asides_that_fails_is_replaced_by_the_usual_one() -> None:
    async with open_provider(Trouble(500)) as provider:
        settings = LlmSettings(model="m", base_url=provider.url, api_key=SecretStr(KEY), aside_model="small")
        answer = await LlmAgent(settings).ask(HELLO, "Answer.")
    assert (answer.text, answer.instead_of) == ("heard: hello", "small")
    assert [asked.body["model"] for asked in provider.requests] == ["small", "m"]
    async with open_provider(Trouble(500)) as provider:
        with pytest.raises(Outage):
            await LlmAgent(LlmSettings(model="m", base_url=provider.url, api_key=SecretStr(KEY))).ask(HELLO, "Answer.")


def test_how_much_is_read_at_once_is_as_set_or_as_known_for_the_model() -> None:
    known = LlmSettings(model="openai:gpt-5", api_key=SecretStr(KEY), models=("openai:gpt-4o",))
    agent = LlmAgent(known)
    assert agent.context_tokens() == 400_000 and agent.context_tokens("unlisted") == 400_000
    assert agent.context_tokens("openai:gpt-4o") == 128_000
    assert LlmAgent(known.model_copy(update={"context_tokens": 5000})).context_tokens() == 5000
    assert LlmAgent(LlmSettings(model="m", base_url="http://localhost:1/v1")).context_tokens() is None

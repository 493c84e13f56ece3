"""A model of pydantic-ai's: what its errors decide, what a row keeps of its answer, and what is sent back to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import exceptions as failures
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from shared.agent.events import Call
from shared.context.marks import BLOCKS, REASONING, THINKING, TOOL_CALL_ID, TOOL_CALLS
from shared.errors import Outage, PipelineError, RateLimited, Transient
from shared.messages import Entry
from tests.support.whole_model import WholeModel
from workers.agents.model.contract import ModelRefused, Prompt, QuotaUsedUp, Response, TooLong, ToolSpec
from workers.agents.model.direct import DirectModel, classified
from workers.agents.model.direct_messages import marks_of, messages
from workers.agents.openai_format.refusals import PATIENCE


class HttpRateLimit(failures.ModelRateLimitError, failures.ModelHTTPError): ...


class HttpServerError(failures.ModelServerError, failures.ModelHTTPError): ...


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failures.ModelContextWindowExceededError("m", "secret"), TooLong),
        (failures.ModelRequestRejectedError("m", "secret", provider_error_code="context_length_exceeded"), TooLong),
        (failures.ModelRequestRejectedError("m", "secret", provider_error_type="exceed_context_size_error"), TooLong),
        (failures.ModelRequestRejectedError("m", "secret"), ModelRefused),
        (failures.ModelAuthenticationError("m", "secret"), ModelRefused),
        (failures.ModelQuotaExceededError("m", "secret"), QuotaUsedUp),
        (failures.ContentFilterError("secret"), ModelRefused),
        (failures.UsageLimitExceeded("secret"), ModelRefused),
        (failures.UserError("secret"), ModelRefused),
        (failures.ModelRateLimitError("m", "secret"), RateLimited),
        (failures.ModelUnavailableError("m", "secret"), Outage),
        (failures.ModelUnavailableError("m", "secret", retry_after=3), RateLimited),
        (failures.ModelServerError("m", "secret"), Outage),
        (failures.ModelServerError("m", "secret", retry_after=3), Outage),
        (failures.ModelConnectionError("m", "secret"), Outage),
        (failures.ModelTimeoutError("m", "secret"), Transient),
        (failures.UnexpectedModelBehavior("secret"), Transient),
    ],
)
def test_a_providers_error_decides_and_is_not_repeated(error: Exception, expected: type[PipelineError]) -> None:
    decision = classified(error, "acme")
    assert type(decision) is expected
    assert "secret" not in str(decision)
    if isinstance(decision, Outage):
        assert (decision.provider, decision.status) == ("acme", None)


def test_an_error_names_its_kind_its_status_and_its_codes() -> None:
    error = HttpServerError(502, "m", provider_error_code="b" * 61, provider_error_type="a")
    decision = classified(error, "acme")
    assert str(decision) == f"model: HttpServerError 502 a {'b' * 60}"
    assert isinstance(decision, Outage) and decision.status == 502


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, PATIENCE),
        (0, PATIENCE),
        (3, timedelta(seconds=3)),
        (86_400, timedelta(days=1)),
        (90_000, timedelta(days=1)),
    ],
)
def test_a_rate_limit_waits_as_long_as_asked_within_bounds(asked: float | None, expected: timedelta) -> None:
    decision = classified(HttpRateLimit(429, "m", retry_after=asked), "acme")
    assert isinstance(decision, RateLimited)
    assert (decision.retry_after, decision.provider, decision.status) == (expected, "acme", 429)


def test_a_provider_that_is_away_waits_as_long_as_it_says() -> None:
    decision = classified(failures.ModelUnavailableError("m", "secret", retry_after=3), "acme")
    assert isinstance(decision, RateLimited)
    assert (decision.retry_after, decision.provider) == (timedelta(seconds=3), "acme")


# -- a request


class Asked:
    """A model that remembers what it was asked, and answers as it was told."""

    def __init__(self, *parts: Any, **about: Any) -> None:
        self.messages: list[ModelMessage] = []
        self.info: AgentInfo | None = None
        self._answer = ModelResponse(list(parts) or [TextPart("hi")], **about)
        self.model = DirectModel(WholeModel(self._respond), 5, 99)

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.messages, self.info = messages, info
        return self._answer

    async def response(self, prompt: Prompt) -> Response:
        [piece] = [piece async for piece in self.model.stream(prompt)]
        assert isinstance(piece, Response)
        return piece


HELLO = Entry("user", "hello")


async def test_a_request_carries_instructions_tools_and_the_limits_of_an_answer() -> None:
    asked = Asked()
    await asked.response(Prompt([HELLO], "Be kind.", (ToolSpec("look", "Looks.", {"type": "object"}),)))
    assert isinstance(asked.messages[-1], ModelRequest) and asked.messages[-1].instructions == "Be kind."
    assert asked.info is not None
    [tool] = asked.info.function_tools
    assert (tool.name, tool.description, tool.parameters_json_schema) == ("look", "Looks.", {"type": "object"})
    settings = asked.info.model_settings
    assert settings is not None
    assert (settings["max_tokens"], settings["timeout"], settings["max_retries"]) == (99, 5, 0)


async def test_instructions_that_are_empty_are_none_and_stand_with_the_last_question() -> None:
    asked = Asked()
    await asked.response(Prompt([HELLO]))
    assert isinstance(asked.messages[-1], ModelRequest) and asked.messages[-1].instructions is None
    await asked.response(Prompt([HELLO, Entry("assistant", "hi"), HELLO, Entry("assistant", "hm")], "Be kind."))
    told = [message.instructions for message in asked.messages if isinstance(message, ModelRequest)]
    assert told == [None, "Be kind."]


async def test_where_nobody_asks_nothing_is_sent() -> None:
    with pytest.raises(ModelRefused):
        await Asked().response(Prompt([Entry("assistant", "hi")]))


async def test_a_response_is_the_text_calls_and_thoughts_of_its_parts() -> None:
    parts = (ThinkingPart("hm"), TextPart(" a"), ToolCallPart("look", {"at": 1}, "x"), TextPart("b "))
    response = await Asked(*parts).response(Prompt([HELLO]))
    assert (response.text, response.reasoning) == ("ab", "hm")
    assert response.calls == (Call("x", "look", '{"at":1}'),)
    assert not response.is_cut and not response.is_filtered


@pytest.mark.parametrize(
    ("reason", "is_cut", "is_filtered"), [("length", True, False), ("content_filter", False, True)]
)
async def test_a_response_says_why_it_ended(reason: Any, is_cut: bool, is_filtered: bool) -> None:
    response = await Asked(finish_reason=reason).response(Prompt([HELLO]))
    assert (response.is_cut, response.is_filtered) == (is_cut, is_filtered)


async def test_usage_is_what_the_provider_counted() -> None:
    used = RequestUsage(input_tokens=3, output_tokens=2, cache_read_tokens=1, cache_write_tokens=4)
    counted = (await Asked(usage=used).response(Prompt([HELLO]))).usage
    assert (counted["input"], counted["output"], counted["total"]) == (3, 2, 5)
    assert (counted["cache_read"], counted["cache_write"]) == (1, 4)
    assert "estimated" not in counted


# -- rows and messages


def sent(*rows: Entry) -> list[Any]:
    return [part for message in messages(rows, WholeModel(lambda *_: ModelResponse([]))) for part in message.parts]


def test_a_row_without_anything_is_not_sent() -> None:
    assert sent(Entry("assistant", "")) == []
    assert [part.content for part in sent(Entry("assistant", "hi"))] == ["hi"]


def test_a_result_names_its_tool_if_it_can() -> None:
    [named] = sent(Entry("tool", "seen", data={TOOL_CALL_ID: "x", "name": "look"}))
    assert isinstance(named, ToolReturnPart) and (named.tool_name, named.tool_call_id) == ("look", "x")
    [nameless] = sent(Entry("tool", "seen", data={TOOL_CALL_ID: "x"}))
    assert nameless.tool_name == "tool"


def test_calls_are_sent_behind_the_text() -> None:
    text, call = sent(Entry("assistant", "a", data={TOOL_CALLS: [{"id": "x", "name": "look", "arguments": "{}"}]}))
    assert isinstance(text, TextPart) and isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args, call.tool_call_id) == ("look", "{}", "x")


def test_empty_blocks_leave_the_rows_text() -> None:
    assert [part.content for part in sent(Entry("assistant", "a", data={BLOCKS: [{"text": ""}]}))] == ["a"]
    assert [part.content for part in sent(Entry("assistant", "a", data={BLOCKS: [{"text": "b"}, {"text": "c"}]}))] == [
        "b",
        "c",
    ]


DATA = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "hi"}, "hi"),
        ({"image_url": "https://a/b.png"}, ImageUrl("https://a/b.png")),
        (
            {"image_url": {"url": "http://a/b.png", "detail": "low"}},
            ImageUrl("http://a/b.png", vendor_metadata={"detail": "low"}),
        ),
        ({"source": {"type": "url", "url": "https://a/b.png"}}, ImageUrl("https://a/b.png")),
    ],
)
def test_a_block_that_a_request_can_carry_is_carried(block: Any, expected: Any) -> None:
    [part] = sent(Entry("user", "instead", data={BLOCKS: [block]}))
    assert isinstance(part, UserPromptPart) and part.content == [expected]


@pytest.mark.parametrize("block", [{"image_url": DATA}, {"source": {"media_type": "image/png", "data": "aGk="}}])
def test_a_picture_of_bytes_is_carried_as_bytes(block: Any) -> None:
    [part] = sent(Entry("user", "instead", data={BLOCKS: [block]}))
    [picture] = part.content
    assert isinstance(picture, BinaryContent) and (picture.data, picture.media_type) == (b"hi", "image/png")


@pytest.mark.parametrize(
    "block",
    ["words", {"type": "audio"}, {"image_url": "file:///etc/passwd"}, {"image_url": "data:text/html;base64,aGk="}],
)
def test_a_block_that_no_request_can_carry_leaves_the_rows_text(block: Any) -> None:
    [part] = sent(Entry("user", "instead", data={BLOCKS: [block]}))
    assert part.content == "instead"


def kept(*parts: Any) -> dict[str, Any]:
    return marks_of(ModelResponse(list(parts)))


def test_blocks_are_kept_where_text_alone_loses_something() -> None:
    assert kept(TextPart("a")) == {}
    assert kept(TextPart("a"), TextPart("b"))[BLOCKS] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    [block] = kept(TextPart("a", provider_name="acme", provider_details={"x": 1}))[BLOCKS]
    assert block == {"type": "text", "text": "a", "provider": "acme", "details": {"x": 1}}


def test_thoughts_are_kept_where_the_provider_wants_them_back() -> None:
    assert kept(ThinkingPart("hm")) == kept(ThinkingPart("hm", id="content")) == {}
    assert kept(ThinkingPart("hm", id="r1", provider_name="acme"))[THINKING] == [
        {"type": "thinking", "thinking": "hm", "id": "r1", "provider": "acme"}
    ]
    assert kept(ThinkingPart("hm", signature="s"))[THINKING][0]["signature"] == "s"
    assert kept(ThinkingPart("hm", provider_details={"x": 1}))[THINKING][0]["details"] == {"x": 1}
    hidden = ThinkingPart("", id="redacted_thinking", signature="s", provider_name="anthropic")
    assert kept(hidden)[THINKING] == [{"type": "redacted_thinking", "data": "s", "provider": "anthropic"}]


def test_thoughts_that_nobody_signed_are_not_sent_to_a_provider_that_would_read_them_as_text() -> None:
    assert [type(part) for part in sent(Entry("assistant", "a", data={REASONING: "hm"}))] == [TextPart]

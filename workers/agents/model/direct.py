"""A model by pydantic-ai, for every provider that does not speak the chat-completions format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

from pydantic_ai import exceptions as failures
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from shared.agent.events import Call
from shared.blobs.contract import NotKept
from shared.byte_budget import ByteBudget
from shared.context.marks import PICTURES
from shared.errors import Outage, PipelineError, RateLimited, Transient
from workers.agents.model.attachments import Picture
from workers.agents.model.contract import AccessRefused, ModelRefused, Piece, Prompt, QuotaUsedUp, Response, TooLong
from workers.agents.model.direct_messages import marks_of, messages, piece_of, reasoning_of
from workers.agents.model.prices import Tokens
from workers.agents.model.usage import estimated, usage_of
from workers.agents.openai_format.refusals import NO_ACCESS, PATIENCE, TOO_LONG_CODES

UNSAID_ENDS = frozenset({"cohere", "function"})  # of whose streams pydantic-ai does not tell why they ended
PICTURE_BYTES = 24_000_000  # that all requests to one model hold at once: each is copied some four times on its way


class DirectModel:
    """A `Model` made of one of pydantic-ai's. `timeout_seconds` is how long it may say nothing."""

    def __init__(self, original: PydanticModel, timeout_seconds: float, max_output_tokens: int | None = None) -> None:
        self.original = original
        self.name = original.model_name
        self.provider = original.system
        # The pipeline tries again by itself, without holding a worker: the client must not.
        self._settings = ModelSettings(timeout=timeout_seconds, max_retries=0)
        self._in_memory = ByteBudget(PICTURE_BYTES)
        if max_output_tokens is not None:
            self._settings["max_tokens"] = max_output_tokens

    @property
    def context_window(self) -> int | None:
        return self.original.profile.get("context_window")

    async def stream(self, prompt: Prompt) -> AsyncIterator[Piece | Response]:
        tools = [
            ToolDefinition(name=tool.name, parameters_json_schema=dict(tool.schema), description=tool.description)
            for tool in prompt.tools
        ]
        pictures = [picture for row in prompt.rows for picture in row.data.get(PICTURES) or ()]
        try:
            async with self._in_memory.room(sum(picture.size for picture in pictures)):
                seen = await _read(pictures)
                request = model_request_stream(
                    self.original,
                    _instructed(messages(prompt.rows, self.original, seen), prompt.instructions),
                    model_settings=self._settings,
                    model_request_parameters=ModelRequestParameters(function_tools=tools),
                )
                async with request as answer:
                    async for event in answer:
                        if (piece := piece_of(event)) is not None:
                            yield piece
                    response = answer.get()
        except (failures.AgentRunError, failures.UserError) as error:
            raise classified(error, self.provider) from None
        if response.finish_reason is None and self.provider not in UNSAID_ENDS and not _raw_end(response):
            raise Transient("the model's answer has no end")
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        yield Response(
            text,
            self._usage(prompt, response, text),
            tuple([Call(call.tool_call_id, call.tool_name, call.args_as_json_str()) for call in calls]),
            reasoning_of(response),
            marks_of(response),
            is_cut=response.finish_reason == "length",
            is_filtered=response.finish_reason == "content_filter",
        )

    def _usage(self, prompt: Prompt, response: ModelResponse, text: str) -> dict[str, object]:
        used = response.usage
        tokens = Tokens(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
        if tokens.input + tokens.output <= 0:
            return estimated(self.name, prompt, text)
        cost: Decimal | None = used.cost
        return usage_of(self.name, tokens, cost)


def _raw_end(response: ModelResponse) -> str:
    """Why the answer ended in the provider's own word, where pydantic-ai has no word for it."""
    return str((response.provider_details or {}).get("finish_reason") or "")


async def _read(pictures: Sequence[Picture]) -> dict[str, bytes]:
    """The bytes of pictures by their placeholders. One that has vanished is left out: the text names it."""
    seen: dict[str, bytes] = {}
    for picture in pictures:
        with suppress(NotKept):
            seen[picture.placeholder] = await picture.read()
    return seen


def classified(error: Exception, provider: str) -> PipelineError:
    """The decision that a provider's error asks for. Its body is not repeated: providers echo keys and messages in it."""
    what, status = _described(error), error.status_code if isinstance(error, failures.ModelHTTPError) else None
    if isinstance(error, failures.ModelContextWindowExceededError) or _codes(error) & TOO_LONG_CODES:
        return TooLong()
    if isinstance(error, failures.ModelRateLimitError):
        wait = _wait(error)
        return RateLimited(wait or PATIENCE, provider=provider, status=status, is_guess=not wait)
    if isinstance(error, failures.ModelUnavailableError) and (wait := _wait(error)) is not None:
        return RateLimited(wait, provider=provider, status=status)
    away = failures.ModelUnavailableError | failures.ModelServerError | failures.ModelConnectionError
    # One that takes too long may do so because of what it was asked.
    if isinstance(error, away) and not isinstance(error, failures.ModelTimeoutError):
        return Outage(what, provider=provider, status=status)
    if isinstance(error, failures.ModelQuotaExceededError):
        return QuotaUsedUp(what)
    if status in NO_ACCESS:
        return AccessRefused(what)
    # A limit that an agent sets itself is reached again on every try.
    lost = failures.ModelRequestRejectedError | failures.ContentFilterError | failures.UsageLimitExceeded
    if isinstance(error, lost | failures.UserError):
        return ModelRefused(what)
    return Transient(what)


def _described(error: Exception) -> str:
    status = f" {error.status_code}" if isinstance(error, failures.ModelHTTPError) else ""
    codes = "".join(f" {code:.60}" for code in sorted(_codes(error)))
    return f"model: {type(error).__name__}{status}{codes}"


def _codes(error: Exception) -> set[str]:
    if not isinstance(error, failures.ModelAPIError):
        return set()
    return {code for code in (error.provider_error_code, error.provider_error_type) if code}


def _wait(error: failures.ModelAPIError) -> timedelta | None:
    return timedelta(seconds=min(error.retry_after, 86_400)) if error.retry_after is not None else None


def _instructed(messages: list[ModelMessage], instructions: str) -> list[ModelMessage]:
    last = next((message for message in reversed(messages) if isinstance(message, ModelRequest)), None)
    if last is None:
        raise ModelRefused("there is nothing to answer")
    last.instructions = instructions or None
    return messages

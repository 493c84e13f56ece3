"""The `llm` agent: a language model by pydantic-ai, any provider or any OpenAI-compatible server. No tools yet.

What a provider's errors become, and so what happens to the message:

| the provider says | becomes | the message |
|---|---|---|
| 429, or 503 with Retry-After | RateLimited with that time | waits, without spending an attempt |
| 5xx, no connection, a cut connection | Outage | waits, without spending an attempt |
| no answer in time, an empty answer | Transient | is tried again |
| too long for the context | half the window, once; then Refused | is set aside, the chat is told why |
| bad key, no such model, quota used up, request or content refused | Refused | is set aside |

An assistant row's `usage` holds `model`, `requests`, `input`, `output`, `cache_read`, `cache_write` and `total` tokens of the
turn, `prompt` (input tokens of the last request), and `cost_usd` with `cost` = estimated, or only `cost` = unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from shared import settings
from shared.agent.turn import Result, Turn
from shared.context.history import window
from shared.context.marks import BLOCKS, REASONING, THINKING, USAGE, user_row
from shared.context.memory import remembered
from shared.context.shared_thread import is_shared, signed
from shared.context.tokens import estimate, replay_budget
from shared.errors import ConfigurationError, Outage, Permanent, PipelineError, RateLimited, Transient
from shared.messages import Entry, Reply
from shared.session_key import SessionKey
from workers.agents.contract import Answer

try:
    from openai import DefaultAsyncHttpxClient
    from pydantic_ai import exceptions as failures
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
    )
    from pydantic_ai.models import Model, infer_model
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    from pydantic_ai.settings import ModelSettings

    from workers.agents.model_messages import marks_of, messages, reasoning_of
except ImportError as error:
    raise ConfigurationError(f"AGENT=llm and AGENT=local need pydantic-ai: install keyturn[llm] ({error})") from None

PATIENCE = timedelta(seconds=10)  # after a 429 that names no time
OUTPUT_TOKENS = 4096  # set aside for the answer where no setting says how long it may get
PROVIDERS_OWN = (BLOCKS, THINKING)  # marks in a form that only some providers read
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error"}
TOO_LONG_NOTICE = "This conversation has become too long for me. Please start a new one, or send a shorter message."


class Refused(Permanent):
    """The provider will not answer this."""


class TooLong(Refused):
    """More than the model reads at once."""

    def __init__(self) -> None:
        super().__init__("the conversation is too long for the model", TOO_LONG_NOTICE)


class LlmAgent:
    """Answers with the model that the settings name. Keeps nothing between turns but its connections."""

    wants_context = True

    def __init__(self, config: settings.LlmSettings, model: Model | None = None, *, zone: tzinfo = UTC) -> None:
        self._config = config
        self._times_in = zone if config.timestamps else None
        self._model = model or open_model(config)
        self._models = {name: open_model(config.model_copy(update={"model": name})) for name in config.models}
        self._aside = (
            open_model(config.model_copy(update={"model": config.aside_model})) if config.aside_model else None
        )

    async def run(self, turn: Turn) -> Result:
        """Answer the mail. A conversation too long for the model is tried once more with half of it, and one with pictures
        or thoughts that the provider refuses once more with its text alone: it may be another provider than theirs."""
        entries = (*turn.history, *map(user_row, turn.mail))
        if is_shared(SessionKey.parse(turn.session_key)):
            entries = tuple(signed(entry, turn.sender_key) for entry in entries)
        told = "\n\n".join(filter(None, (self._config.system_prompt, remembered(turn.memory), turn.context)))
        model, times_in = self._named(turn.model), self._times_in
        budget = self._budget(model, told)
        rows = window(entries, budget=budget, at_least=len(turn.mail), times_in=times_in)
        try:
            answer = await self._request(model, _noted(rows, turn), told)
        except TooLong:
            if len(rows) <= len(turn.mail):
                raise
            half = max(len(rows) // 2, 1)
            rows = window(entries, cap=half, budget=budget, at_least=len(turn.mail), times_in=times_in)
            answer = await self._request(model, _noted(rows, turn), told)
        except Refused:
            if not any(mark in row.data for mark in PROVIDERS_OWN for row in rows):
                raise
            answer = await self._request(model, _noted([*map(_text_only, rows)], turn), told)
        data = {USAGE: answer.usage, REASONING: answer.reasoning, **answer.marks}
        entry = Entry("assistant", answer.text, data={name: value for name, value in data.items() if value})
        return Result((entry,), (Reply(answer.text),))

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        """One request aside: to the model that is kept for that and, should it fail, to the one that answers."""
        if self._aside is None:
            return await self._request(self._model, rows, system_prompt)
        try:
            return await self._request(self._aside, rows, system_prompt)
        except PipelineError:
            answer = await self._request(self._model, rows, system_prompt)
            return replace(answer, instead_of=self._aside.model_name)

    def context_tokens(self, model: str = "") -> int | None:
        """How much that model reads at once; None where nobody says."""
        return self._config.context_tokens or self._named(model).profile.get("context_window")

    def _named(self, name: str) -> Model:
        """A model that is not listed any more is not asked: the conversation goes on with the usual one."""
        return self._models.get(name, self._model)

    def _budget(self, model: Model, told: str) -> int | None:
        known = self._config.context_tokens or model.profile.get("context_window")
        limit = self._config.max_output_tokens or OUTPUT_TOKENS
        return replay_budget(known, min(limit, known // 2) + estimate(told)) if known else None

    async def _request(self, model: Model, rows: Sequence[Entry], instructions: str) -> Answer:
        """One request. Raises what the table above says."""
        try:
            asked = _instructed(messages(rows, model), instructions)
            response = await model_request(model, asked, model_settings=self._settings())
        except (failures.AgentRunError, failures.UserError) as error:
            raise classified(error, model.system) from None
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
        if not text:
            if response.finish_reason == "content_filter":
                raise Refused("the provider's content filter refused to answer")
            raise Transient("the model answered nothing")
        usage = _usage(response, model.model_name)
        return Answer(text, reasoning_of(response), usage, marks=marks_of(response))

    def _settings(self) -> ModelSettings:
        # The pipeline tries again by itself, without holding a worker: the client must not.
        settings = ModelSettings(timeout=self._config.timeout_seconds, max_retries=0)
        if self._config.max_output_tokens is not None:
            settings["max_tokens"] = self._config.max_output_tokens
        return settings


def open_model(config: settings.LlmSettings) -> Model:
    """The model that the settings name; nothing is sent yet. A ConfigurationError says what is wrong."""
    if not config.model:
        raise ConfigurationError("AGENT=llm needs LLM__MODEL, such as openai:gpt-5")
    key = config.api_key.get_secret_value() if config.api_key is not None else None
    try:
        if config.base_url is not None:
            # A server on this machine is not reached through the environment's proxy.
            client = DefaultAsyncHttpxClient(trust_env=urlsplit(config.base_url).hostname not in LOOPBACK)
            provider = OpenAICompatibleProvider(
                "openai-compatible", base_url=config.base_url, api_key=key or "none", http_client=client
            )
            return OpenAIChatModel(config.model, provider=provider)
        if key is None:
            return infer_model(config.model, infer_provider)

        def with_key(name: str) -> Provider[Any]:
            kind: Any = infer_provider_class(name)
            opened: Provider[Any] = kind(api_key=key)
            return opened

        return infer_model(config.model, with_key)
    except (failures.UserError, ImportError, ValueError, TypeError) as error:
        raise ConfigurationError(f"LLM__MODEL={config.model}: {error}") from None


def classified(error: Exception, provider: str) -> PipelineError:
    """The decision that a provider's error asks for. Its body is not repeated: providers echo keys and messages in it."""
    what, status = _described(error), error.status_code if isinstance(error, failures.ModelHTTPError) else None
    if isinstance(error, failures.ModelContextWindowExceededError) or _codes(error) & TOO_LONG_CODES:
        return TooLong()
    if isinstance(error, failures.ModelRateLimitError):
        return RateLimited(_wait(error) or PATIENCE, provider=provider, status=status)
    if isinstance(error, failures.ModelUnavailableError) and (wait := _wait(error)) is not None:
        return RateLimited(wait, provider=provider, status=status)
    away = failures.ModelUnavailableError | failures.ModelServerError | failures.ModelConnectionError
    # One that takes too long may do so because of what it was asked.
    if isinstance(error, away) and not isinstance(error, failures.ModelTimeoutError):
        return Outage(what, provider=provider, status=status)
    lost = failures.ModelRequestRejectedError | failures.ModelQuotaExceededError | failures.ContentFilterError
    if isinstance(error, lost | failures.UserError):
        return Refused(what)
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


def _noted(rows: Sequence[Entry], turn: Turn) -> Sequence[Entry]:
    """The rows with what the model is told beside the mail, just before it. It comes from us and not from the user."""
    if not turn.notes:
        return rows
    at = max(len(rows) - len(turn.mail), 0)
    return (*rows[:at], *(Entry("user", f"[Note of the system: {note}]") for note in turn.notes), *rows[at:])


def _instructed(messages: list[ModelMessage], instructions: str) -> list[ModelMessage]:
    last = next((message for message in reversed(messages) if isinstance(message, ModelRequest)), None)
    if last is None:
        raise Refused("there is nothing to answer")
    last.instructions = instructions or None
    return messages


def _text_only(row: Entry) -> Entry:
    return replace(row, data={name: value for name, value in row.data.items() if name not in PROVIDERS_OWN})


def _usage(response: ModelResponse, model: str) -> dict[str, Any]:
    used = response.usage
    tokens = {
        "input": used.input_tokens,
        "output": used.output_tokens,
        "cache_read": used.cache_read_tokens,
        "cache_write": used.cache_write_tokens,
        "total": used.input_tokens + used.output_tokens,
        "prompt": used.input_tokens,
    }
    return {"model": model, "requests": 1, **tokens, **_cost(used.cost)}


def _cost(cost: Decimal | None) -> dict[str, str]:
    return {"cost": "unknown"} if cost is None else {"cost": "estimated", "cost_usd": f"{cost:f}"}

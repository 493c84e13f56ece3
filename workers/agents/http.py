"""The `http` agent: each turn is posted to a URL.

The body is the turn (shared/agent/wire.py) with `seconds`, the time that there is for it. `Idempotency-Key` is the same on
every attempt at the same message. With HTTP__FORMAT=chat the URL is an OpenAI-compatible chat endpoint instead.

| content type of a 200 | is read as |
|---|---|
| `text/plain` | the answer, as it comes |
| `application/json` | `{"text": "…"}`, one event, or `{"events": […]}` |
| `text/event-stream` | an event in each `data:`; the last one is `done` |

| the server says | becomes | the message |
|---|---|---|
| 204 | no answer | is answered, and the chat is told nothing |
| 429, or 503 with Retry-After | RateLimited with that time | waits, without spending an attempt |
| other 5xx, no connection, a cut connection | Outage | waits, without spending an attempt |
| 408, 409, 425; nothing for HTTP__TIMEOUT_SECONDS; a stream without `done` | Transient | is tried again |
| a redirect, any other status | Permanent | is set aside. `{"notice": "…"}` in the body is what the chat is told |
| something that is no event, more than HTTP__MAX_ANSWER_BYTES | AgentFault | is tried again |
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from shared.agent.events import Done, Event
from shared.agent.files import NoFiles
from shared.agent.turn import Turn
from shared.agent.wire import encode_turn
from shared.errors import (
    AgentFault,
    Ambiguous,
    ConfigurationError,
    Outage,
    Permanent,
    PipelineError,
    RateLimited,
    Silent,
    Transient,
    Unreachable,
)
from shared.http_client import HttpClient, HttpStream, hold_http_client, retry_after
from workers.agents.contract import Agent, NeedsNoTask
from workers.agents.named import NO_URL
from workers.agents.spoken import SpokenEvents, SpokenText, answer_events, lines

if TYPE_CHECKING:
    from datetime import tzinfo

    from shared.settings.agents import HttpSettings, LlmSettings

CONNECT_SECONDS = 20
LONGEST_WAIT = timedelta(days=1)
AGAIN = (408, 409, 425)
BUSY = (503, 529)
NOTICE_CHARACTERS = 2_000
EVENTS, JSON, TEXT = "text/event-stream", "application/json", "text/plain"


class HttpAgent(NeedsNoTask):
    """Answers with what a server says. Its connections are kept, and shared by all turns."""

    def __init__(self, config: HttpSettings) -> None:
        if not config.url:
            raise ConfigurationError(NO_URL)
        self._config = config
        self._url = config.url
        self._name = urlsplit(config.url).hostname or "http"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: AsyncGenerator[HttpClient, None] | None = None
        self._client: HttpClient | None = None

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Post the turn. Events come as the server sends them; a turn that is stopped closes the connection."""
        client = await self._open()
        seconds = None if turn.deadline == math.inf else round(max(0.0, turn.deadline - time.monotonic()), 3)
        body, silent = encode_turn(replace(turn, sender_key="", files=NoFiles()), seconds), self._config.timeout_seconds
        try:
            async with client.post_stream(self._url, body, self._headers(turn), silent_seconds=silent) as answer:
                if answer.status not in (200, 204):
                    raise refused(answer.status, answer.headers, await self._whole(answer), self._name)
                async for event in self._said(answer):
                    yield event
        except Silent:
            raise Transient("the agent's server did not answer in time") from None
        except (Ambiguous, Unreachable) as error:
            raise Outage(f"the agent: no connection, or a cut one ({error})", provider=self._name) from None

    async def _said(self, answer: HttpStream) -> AsyncIterator[Event]:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status == 204:
            yield Done()
        elif kind == EVENTS:
            async for event in self._streamed(answer):
                yield event
        elif kind == TEXT:
            text = SpokenText()
            async for chunk in self._chunks(answer):
                for event in text.take(chunk):
                    yield event
            for event in text.end():
                yield event
        elif kind == JSON:
            for event in events_in(await self._whole(answer)):
                yield event
        else:
            raise AgentFault(f"the agent's server answered with {kind!r:.80}; use {TEXT}, {JSON} or {EVENTS}")

    async def _streamed(self, answer: HttpStream) -> AsyncIterator[Event]:
        events = SpokenEvents()
        async for line in lines(self._chunks(answer)):
            if line.startswith(b"data:"):
                yield events.take(line[5:].strip())
                if events.has_ended:
                    await answer.drain()
                    return
        raise Transient("the agent's server ended its stream without done")

    async def _chunks(self, answer: HttpStream) -> AsyncIterator[bytes]:
        size, most = 0, self._config.max_answer_bytes
        async for chunk in answer.chunks():
            size += len(chunk)
            if size > most:
                raise AgentFault(f"the agent's server said more than {most} bytes, which is HTTP__MAX_ANSWER_BYTES")
            yield chunk

    async def _whole(self, answer: HttpStream) -> bytes:
        return b"".join([chunk async for chunk in self._chunks(answer)])

    def _headers(self, turn: Turn) -> dict[str, str]:
        headers = {
            "content-type": JSON,
            "accept": f"{EVENTS}, {JSON}, {TEXT}",
            "idempotency-key": turn.run or turn.id,
        }
        if self._config.token is not None:
            headers["authorization"] = f"Bearer {self._config.token.get_secret_value()}"
        return headers | {name.lower(): text.get_secret_value() for name, text in self._config.headers.items()}

    async def _open(self) -> HttpClient:
        """The client of the running event loop. The generator that holds it is closed by the loop when that shuts down."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop, self._held = loop, hold_http_client(connections=0, seconds=CONNECT_SECONDS * 2)
            self._client = await anext(self._held)
        return self._client


def open_http_agent(config: HttpSettings, llm: LlmSettings, zone: tzinfo) -> Agent:
    """The agent that the settings want: one that is posted turns, or one that is asked in the format of chat completions."""
    if config.format == "turn":
        return HttpAgent(config)
    if not config.url or not config.model:
        raise ConfigurationError(
            "AGENT=http with HTTP__FORMAT=chat needs HTTP__URL, up to and with its /v1, and HTTP__MODEL"
        )
    from workers.agents.llm import LlmAgent

    asked: dict[str, Any] = {
        "model": config.model,
        "base_url": config.url,
        "api_key": config.token,
        "timeout_seconds": config.timeout_seconds,
        "system_prompt": "",  # it is an agent already, and has its own
        "system_prompt_file": None,
        "persona_file": None,
        "tools": (),
        "models": (),
        "fallbacks": {},
        "aside_model": None,
    }
    return LlmAgent(llm.model_copy(update=asked), zone=zone)


def events_in(body: bytes) -> list[Event]:
    """The events of an answer in JSON. AgentFault where it has none."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AgentFault("the agent's server answered something that is no JSON") from None
    match said:
        case {"text": str(text)}:
            return answer_events(text.strip())
        case {"events": list(records)}:
            pass
        case _:
            records = [said]
    events = SpokenEvents()
    return [*(events.take(orjson.dumps(record)) for record in records), *events.end()]


def refused(status: int, headers: Mapping[str, str], body: bytes, name: str) -> PipelineError:
    """What the table above says of a status. The body is not repeated in the text: it may quote what it was sent."""
    asked = headers.get("retry-after")
    if status == 429 or (status in BUSY and asked is not None):
        return RateLimited(retry_after(asked, longest=LONGEST_WAIT), provider=name, status=status)
    if status >= 500:
        return Outage(f"the agent: HTTP {status}", provider=name, status=status)
    if status in AGAIN:
        return Transient(f"the agent: HTTP {status}")
    if 300 <= status < 400:
        return Permanent(f"the agent: HTTP {status}: redirects are not followed; set HTTP__URL to where it leads")
    said: Any = None
    with suppress(orjson.JSONDecodeError):
        said = orjson.loads(body)
    notice = said.get("notice") if isinstance(said, Mapping) else None
    return Permanent(f"the agent: HTTP {status}", notice[:NOTICE_CHARACTERS] if isinstance(notice, str) else None)

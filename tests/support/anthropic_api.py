"""A model provider that speaks Anthropic's Messages API: it streams, remembers requests, and can be trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

KEY = "sk-ant-canary-2c81fe"
MODEL = "claude-sonnet-5-5"
Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnthropicTrouble:
    """An answer other than the good one."""

    status: int = 200
    kind: str = "api_error"
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""  # as it is, instead of an error in JSON
    events: int | None = None  # of a good answer that are sent; then the connection is cut
    ends: bool = False  # not cut: the stream ends as if it were whole


@dataclass(frozen=True, slots=True)
class AnthropicAsked:
    """One request as it arrived."""

    key: str
    body: dict[str, Any]

    @property
    def last(self) -> list[Block]:
        content = self.body["messages"][-1]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


Answer = Callable[[AnthropicAsked], Sequence[Block]]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def tool_use(name: str, id: str = "toolu_1", **arguments: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def heard(asked: AnthropicAsked) -> Sequence[Block]:
    return [text(f"heard: {asked.last[-1].get('text')}")]


class AnthropicProvider:
    def __init__(self, troubles: Sequence[AnthropicTrouble | None], answer: Answer) -> None:
        self.requests: list[AnthropicAsked] = []
        self.url = ""
        self._troubles = iter(troubles)
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while await self._take(reader, writer):
                pass
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. False: the connection is to be cut."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert head[0].startswith("POST /v1/messages"), head[0]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = orjson.loads(await reader.readexactly(int(headers["content-length"])))
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        asked = AnthropicAsked(key, body)
        self.requests.append(asked)
        trouble = next(self._troubles, None)
        if asked.key != KEY:
            trouble = AnthropicTrouble(401, "authentication_error", f"invalid x-api-key {asked.key}")
        if trouble is None:
            return await _send(writer, 200, b"".join(streamed(body["model"], self._answer(asked))))
        if trouble.events is not None:
            events = streamed(body["model"], self._answer(asked))[: trouble.events]
            return await _send(writer, 200, b"".join(events), is_cut=not trouble.ends)
        if trouble.body:
            return await _send(writer, trouble.status, trouble.body)
        error = {"type": "error", "error": {"type": trouble.kind, "message": f"{trouble.message}: {asked.last}"}}
        return await _send(writer, trouble.status, orjson.dumps(error), "application/json", trouble.headers)


def streamed(model: str, blocks: Sequence[Block]) -> list[bytes]:
    """The events of an answer: a text in two halves, the arguments of a call too."""
    usage = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 0}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            begun, delta, whole = {**block, "text": ""}, "text_delta", block["text"]
        else:
            begun, delta, whole = {**block, "input": {}}, "input_json_delta", orjson.dumps(block["input"]).decode()
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        field_of = {"text_delta": "text", "input_json_delta": "partial_json"}[delta]
        for half in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            piece = {"type": delta, field_of: half}
            events.append({"type": "content_block_delta", "index": index, "delta": piece})
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    ended = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {orjson.dumps(event).decode()}\n\n".encode() for event in events]


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    kind: str = "text/event-stream",
    headers: dict[str, str] | None = None,
    *,
    is_cut: bool = False,
) -> bool:
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    length = len(body) + (99 if is_cut else 0)
    writer.write(
        f"HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n".encode() + body
    )
    await writer.drain()
    return not is_cut


@asynccontextmanager
async def open_anthropic(
    *troubles: AnthropicTrouble | None, answer: Answer = heard
) -> AsyncIterator[AnthropicProvider]:
    """A provider that answers at `provider.url` until the block ends: first the troubles (None: none), then well."""
    provider = AnthropicProvider(troubles, answer)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, limit=1 << 24)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await server.wait_closed()

"""A model provider as the `llm` agent sees it: an OpenAI-compatible HTTP server that remembers requests and can be trouble."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

KEY = "sk-test-canary-7f3a9c"
MODEL = "test-model"
RETRY_AFTER_SECONDS = 7


@dataclass(frozen=True, slots=True)
class Trouble:
    """An answer other than the good one. No status: the connection is cut."""

    status: int | None
    code: str = ""
    type: str = "error"
    headers: dict[str, str] = field(default_factory=dict)
    cut_body: bool = False  # the head of a good answer, and then nothing
    sent: bytes = b""  # the body as it is, instead of an error in JSON; a stream that is cut after it, where `cut_body`
    kind: str = "text/event-stream"  # of `sent`


RATE_LIMITED = Trouble(429, "rate_limit_exceeded", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
RATE_LIMITED_SILENTLY = Trouble(429, "rate_limit_exceeded")
OUT_OF_QUOTA = Trouble(429, "insufficient_quota")
BROKEN = Trouble(500, "server_error")
BUSY = Trouble(503, "service_unavailable", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
CUT = Trouble(None)
CUT_BODY = Trouble(None, cut_body=True)
TOO_LONG = Trouble(400, "context_length_exceeded", "invalid_request_error")
TOO_LONG_FOR_LLAMA = Trouble(400, "400", "exceed_context_size_error")
NO_SUCH_MODEL = Trouble(404, "model_not_found", "invalid_request_error")
MALFORMED = Trouble(400, "invalid_value", "invalid_request_error")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    key: str
    body: dict[str, Any]

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(message["role"], message["content"] or "") for message in self.body["messages"]]

    @property
    def last(self) -> str:
        return str(self.body["messages"][-1]["content"])


Answers = Callable[[Asked], str | dict[str, Any] | bytes]
"""The text; the whole message, with its `finish_reason` where it is another than stop; or the stream as it is."""


def heard(asked: Asked) -> str:
    return f"heard: {asked.last}"


class Provider:
    def __init__(self, troubles: Iterable[Trouble | None] = (), answer: Answers = heard) -> None:
        self.requests: list[Asked] = []
        self.url = ""
        self.connections = 0
        self.at_once = 0  # the most requests that were open at the same time
        self.gate: asyncio.Event | None = None  # answers wait for it, where there is one
        self.pause: asyncio.Event | None = None  # streams wait for it before their last word, where there is one
        self._coming = iter(tuple(troubles))
        self._answer = answer
        self._now = 0
        self._open: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            while await self._take(reader, writer):
                pass
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the client has gone, or we are closing
        finally:
            self._open.discard(task)
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one request and answer it. False: the connection is to be cut."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert head[0].startswith("POST /v1/chat/completions "), head[0]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = orjson.loads(await reader.readexactly(int(headers["content-length"])))
        asked = Asked(headers.get("authorization", "").removeprefix("Bearer "), body)
        self.requests.append(asked)
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self._now -= 1
        if asked.key != KEY:
            return await _send(writer, 401, _error("invalid_api_key", "invalid_request_error", asked.key))
        trouble = next(self._coming, None)
        if trouble is None:
            return await self._well(writer, asked)
        if trouble.sent:
            length = len(trouble.sent) + (99 if trouble.cut_body else 0)
            writer.write(_head(trouble.status or 200, trouble.kind, length) + trouble.sent)
            await writer.drain()
            return not trouble.cut_body
        if trouble.status is None:
            if trouble.cut_body:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
                await writer.drain()
            return False
        return await _send(writer, trouble.status, _error(trouble.code, trouble.type, asked.last), trouble.headers)

    async def _well(self, writer: asyncio.StreamWriter, asked: Asked) -> bool:
        answer = self._answer(asked)
        if isinstance(answer, bytes):
            writer.write(_head(200, "text/event-stream", len(answer)) + answer)
            await writer.drain()
            return True
        completion = self._completion(asked, {"content": answer} if isinstance(answer, str) else dict(answer))
        if not asked.body.get("stream"):
            return await _send(writer, 200, completion)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for n, chunk in enumerate(chunks := streamed(completion), 1):
            if n == len(chunks) - 2 and self.pause is not None:
                await self.pause.wait()
            data = b"data: " + orjson.dumps(chunk) + b"\n\n"
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()
        return True

    def _completion(self, asked: Asked, message: dict[str, Any]) -> dict[str, Any]:
        finish = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        text = message.get("content") or ""
        sent = sum(len(str(content).split()) for _, content in asked.messages)
        usage = {
            "prompt_tokens": sent,
            "completion_tokens": len(text.split()),
            "total_tokens": sent + len(text.split()),
        }
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": asked.body["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 1}},
        }


def a_call(name: str, arguments: str = "{}", id: str = "call_1") -> dict[str, Any]:
    """A tool call as a message has it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def streamed(completion: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that a completion is streamed in: one per word, tool calls in two halves, the usage last."""
    [choice] = completion["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for place in ("reasoning", "reasoning_content", "content"):
        deltas += [{place: word} for word in re.findall(r"\s*\S+|\s+", message.get(place) or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        written = call["function"]["arguments"]
        first, second = written[: len(written) // 2], written[len(written) // 2 :]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": first}}
        deltas += [{"tool_calls": [piece]} for piece in (begun, {"index": index, "function": {"arguments": second}})]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    said = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    ended = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    return [*said, ended, {**head, "choices": [], "usage": completion["usage"]}]


def _head(status: int, kind: str, length: int) -> bytes:
    return f"HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode()


def _error(code: str, kind: str, echoed: str) -> dict[str, Any]:
    """As real providers do, the text repeats what it should not."""
    return {"error": {"message": f"refused: {echoed}", "type": kind, "code": code, "param": None}}


async def _send(writer: asyncio.StreamWriter, status: int, body: Any, headers: dict[str, str] | None = None) -> bool:
    data = orjson.dumps(body)
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{more}\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return True


@asynccontextmanager
async def open_provider(*troubles: Trouble | None, answer: Answers = heard) -> AsyncIterator[Provider]:
    """A provider that answers at `provider.url` until the block ends: first the troubles (None: none), then well."""
    provider = Provider(troubles, answer)
    server = await asyncio.start_server(provider._serve, "127.0.0.1", 0, limit=1 << 24)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()
        for task in list(provider._open):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await server.wait_closed()

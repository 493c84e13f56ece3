"""A model on a server that speaks the chat-completions format. Answers are streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import orjson
from pydantic import SecretStr

from shared.context.marks import PICTURES
from shared.errors import Ambiguous, Outage, Silent, Transient, Unreachable
from shared.http_client import HttpClient, HttpStream, hold_http_client
from shared.value import value
from workers.agents.model.contract import Piece, Prompt, Response, Unfinished
from workers.agents.model.prices import price
from workers.agents.model.usage import estimated, usage_of
from workers.agents.openai_format.deltas import DONE, Assembled
from workers.agents.openai_format.events import EventData, TooMuch
from workers.agents.openai_format.form import ServerForm, body, thinking_marks
from workers.agents.openai_format.groups import Groups
from workers.agents.openai_format.pace import PROCESS_PACE
from workers.agents.openai_format.pictured import PicturedBody
from workers.agents.openai_format.refusals import refused, refused_in_stream

CONNECT_SECONDS = 20
NOT_A_STREAM = "the server answered something else than a stream of completions"


@value
class ModelServer:
    """Where a model is, and how it is asked. `silent_seconds`: a server that says nothing for so long does not answer."""

    url: str  # up to and with its /v1
    key: SecretStr
    form: ServerForm
    silent_seconds: float
    max_output_tokens: int | None = None
    proxy: str | None = None


class ChatCompletions:
    """A `Model`. Its connections are kept, shared by all its requests, and closed when the event loop ends."""

    def __init__(self, name: str, server: ModelServer, context_window: int | None = None) -> None:
        self.name = name
        self.provider = server.form.provider
        self.context_window = context_window
        self._server = server
        self._url = f"{server.url.rstrip('/')}/chat/completions"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: AsyncGenerator[HttpClient, None] | None = None
        self._client: HttpClient | None = None
        self._groups = Groups()  # requests begin in these

    async def stream(self, prompt: Prompt) -> AsyncIterator[Piece | Response]:
        server, answer = self._server, Assembled()
        client = await self._open()
        await self._groups.enter()
        asked = body(self.name, prompt, server.form, server.max_output_tokens)
        headers = {"authorization": f"Bearer {server.key.get_secret_value()}", "content-type": "application/json"}
        sent: bytes | AsyncIterator[bytes] = asked
        if pictures := [picture for row in prompt.rows for picture in row.data.get(PICTURES) or ()]:
            pictured = PicturedBody(asked, pictures)
            headers["content-length"], sent = str(pictured.size), pictured.chunks()
        try:
            async with client.post_stream(self._url, sent, headers, silent_seconds=server.silent_seconds) as answered:
                if answered.status != 200:
                    raise refused(answered.status, answered.headers, await answered.body(), self.provider)
                yield Piece()  # it has begun to answer
                with PROCESS_PACE as pace:
                    async for chunks in _chunks(answered):
                        piece = answer.take(self._checked(chunks))
                        if piece.text or piece.thought:
                            yield piece
                            if not piece.is_last:
                                answered.rest(pace.seconds)
        except Silent:
            raise Transient("the model did not answer in time") from None
        except (Ambiguous, Unreachable) as error:
            raise Outage(f"model: no connection, or a cut one ({error})", provider=self.provider) from None
        last = answer.end()
        if answer.finish is None:
            raise Unfinished(answer.text)
        if last.text or last.thought:
            yield last
        yield self._response(prompt, answer)

    def _checked(self, chunks: list[Any]) -> list[Mapping[str, Any]]:
        """The chunks, unless one of them is an error or no chunk at all."""
        for chunk in chunks:
            if not isinstance(chunk, dict):
                raise Transient(NOT_A_STREAM)
            if chunk.get("error"):
                raise refused_in_stream(chunk["error"], self.provider)
        return chunks

    def _response(self, prompt: Prompt, answer: Assembled) -> Response:
        said, reasoning = answer.text.strip(), answer.reasoning.strip()
        if answer.tokens is None:
            usage = estimated(self.name, prompt, answer.text + reasoning + answer.arguments)
        else:
            usage = usage_of(self.name, answer.tokens, price(self.name, answer.tokens, self._server.url))
        return Response(
            said,
            usage,
            answer.calls,
            reasoning,
            thinking_marks(answer.reasoning_field, reasoning, self._server.form),
            is_cut=answer.finish == "length",
            is_filtered=answer.finish == "content_filter",
        )

    async def _open(self) -> HttpClient:
        """The client of the running event loop. The generator that holds it is closed by the loop when that shuts down."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop, self._groups = loop, Groups()
            self._held = hold_http_client(connections=0, seconds=CONNECT_SECONDS * 2, proxy=self._server.proxy)
            self._client = await anext(self._held)
        return self._client


async def _chunks(answered: HttpStream) -> AsyncIterator[list[Any]]:
    """The chunks of completions, those together that arrived together. A whole completion is one chunk."""
    kind = answered.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":  # a server that does not stream
            yield [orjson.loads(await answered.body()), DONE]
            return
        data = EventData()
        async for read in answered.chunks():
            found = [_parsed(text) for text in data.fed(read)]
            if found:
                yield found
            if DONE in found:
                await answered.drain()
                return
        if found := [_parsed(text) for text in data.left()]:
            yield found
    except (orjson.JSONDecodeError, TooMuch):
        raise Transient(NOT_A_STREAM) from None


def _parsed(text: bytes) -> Any:
    return DONE if text == b"[DONE]" else orjson.loads(text)

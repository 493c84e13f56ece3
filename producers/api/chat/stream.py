"""A chat completion as a stream: the role at once, text as it is said, comments while nothing is said, and an end in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import anyio
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from producers.api.chat.answer import AnswerEnded, AnswerNews, GaveUp, NothingNew
from producers.api.chat.form import DONE, FAILED, KEEP_ALIVE, LATE, STOPPING, Completion, error_of, event
from producers.api.chat.pending import PendingAnswer
from producers.api.chat.streamed import StreamedText
from producers.api.events import CLOSE_SECONDS, EventStream
from shared.live_text import LiveRecord, SaidText, TokensUsed


async def chunks(about: Completion, heard: AsyncGenerator[AnswerNews], *, wants_usage: bool) -> AsyncGenerator[bytes]:
    """The stream. It ends with `[DONE]` or with an error object, whatever happens to the turn."""
    shown = StreamedText()
    yield about.delta(role="assistant", content="")
    async with aclosing(heard):
        async for news in heard:
            match news:
                case NothingNew():
                    yield KEEP_ALIVE
                case LiveRecord():
                    for chunk in _said(about, shown, news):
                        yield chunk
                case AnswerEnded(text, failed, usage):
                    for chunk in _end(about, shown, text, failed, usage if wants_usage else None):
                        yield chunk
                case GaveUp(is_stopping):
                    yield event(error_of(503, STOPPING) if is_stopping else error_of(504, LATE))


def _said(about: Completion, shown: StreamedText, record: LiveRecord) -> Iterator[bytes]:
    for piece in record.said:
        if not isinstance(piece, SaidText):
            yield about.delta(reasoning_content=piece.thought)
        elif text := shown.take(record.attempt, piece):
            yield about.delta(content=text)


def _end(about: Completion, shown: StreamedText, text: str, failed: bool, usage: TokensUsed | None) -> Iterator[bytes]:
    if failed:
        yield event(error_of(500, text or FAILED))
        return
    if rest := shown.finish(text):
        yield about.delta(content=rest)
    yield about.end()
    if usage is not None:
        yield about.usage(usage)
    yield DONE


class ChatStream(EventStream):
    """The response. Whatever the caller does, the request that it belongs to is closed."""

    def __init__(self, source: AsyncGenerator[bytes], pending: PendingAnswer) -> None:
        super().__init__(source, asyncio.Event())  # it is not cut off when we stop: it says so and ends by itself
        self._pending = pending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):  # the caller's departure cancels us, not this
                await self._pending.close()


def at_once(about: Completion, text: str, usage: TokensUsed | None) -> Response:
    """A stream whose text is known already; `usage` where it was asked for."""
    cost = () if usage is None else (about.usage(usage),)
    said = (about.delta(role="assistant", content=text), about.end(), *cost, DONE)
    return StreamingResponse(iter(said), media_type=EventStream.media_type)

"""Chat completions. A request is mail like any other; its caller waits for what becomes of it.

A caller that leaves ends a stateless turn, as /stop would. A turn of a conversation goes on: its answer is in the transcript.
When the receiver dies, the turn is answered all the same, and the caller asks again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.chat.answer import AnswerEnded, AnswerNews, GaveUp
from producers.api.chat.form import FAILED, LATE, STOPPING, Completion, refused
from producers.api.chat.images import kept_media
from producers.api.chat.inbound import Asked, inbound_of
from producers.api.chat.models import Models, no_such_model
from producers.api.chat.pending import PendingAnswer
from producers.api.chat.request import read_request
from producers.api.chat.stream import ChatStream, at_once, chunks
from producers.api.chat.tasks import Task, task_of
from producers.api.keys import ApiKeys
from producers.api.open_requests import OpenRequests
from producers.heard import Event, Heard, parse_json
from producers.server.body import TooLarge, read_body
from producers.settling import Settler, Understanding
from shared.background import end_tasks
from shared.clock import now_ms
from shared.context.tokens import estimate
from shared.errors import Malformed
from shared.live_text import TokensUsed
from shared.pipeline import Pipeline
from shared.platforms.api import NAME, ApiSettings
from shared.routing import key_for
from shared.session_key import MAIN


class _UnderstoodAlready(Understanding):
    name = NAME

    def normalise(self, event: Event, received_at: int) -> Heard:
        raise Malformed("a chat completion is understood before it is settled")


class Completions:
    """The route."""

    def __init__(self, pipe: Pipeline, keys: ApiKeys, models: Models, open_requests: OpenRequests) -> None:
        self._pipe = pipe
        self._keys = keys
        self._models = models
        self._open = open_requests
        self._settings = pipe.settings.block(ApiSettings)
        self._settler = Settler(pipe, _UnderstoodAlready(), sets_aside_when_full=False, records_malformed=False)

    async def create(self, request: Request) -> Response:
        """Answer a request. Raises what http.py turns into statuses."""
        caller = self._keys.check(request, "chat")
        body = await read_body(request, self._pipe.settings, self._settings.chat_body_bytes)
        asked = read_request(parse_json(body))
        if len(body) - asked.inline_characters > (most := self._pipe.settings.max_body_bytes):
            raise TooLarge(f"what stands beside the images is more than {most} bytes")
        if asked.model and asked.model not in self._models.of(caller):
            return no_such_model(asked.model)
        brought = Asked(asked, request.headers, caller, "" if asked.model == MAIN else asked.model)
        about = Completion(f"chatcmpl-{uuid4().hex}", int(time.time()), asked.model or self._models.of(caller)[0])
        if (task := task_of(brought)) is not None:
            brought = replace(brought, is_task=True)
            if (result := await self._result(brought, task)) is not None:
                usage = TokensUsed(estimate(asked.text), estimate(result))
                if asked.is_streamed:
                    return at_once(about, result, usage if asked.wants_usage else None)
                return JSONResponse(about.whole(result, usage))
        media = await kept_media(asked, self._pipe.blobs, self._pipe.settings.media)
        pending = await self._begin(replace(brought, media=media))
        if asked.is_streamed:
            stopping = request.app.state.stopping
            heard = pending.news(self._settings.answer_seconds, stopping)
            return ChatStream(chunks(about, heard, wants_usage=asked.wants_usage), pending)
        return await self._whole(request, about, pending)

    async def _result(self, asked: Asked, task: Task) -> str | None:
        """What a task gives; None: the agent is asked."""
        title, conversation = None, replace(asked, is_task=False)
        if conversation.conversation:
            key = key_for(inbound_of(conversation, now_ms()), self._pipe.settings)
            session = await self._pipe.store.sessions.find(str(key))
            title = session["title"] if session is not None else None
        return task.answer(asked, title)

    async def _begin(self, asked: Asked) -> PendingAnswer:
        """Accept the message, and listen to what becomes of it from before that on."""
        inbound = inbound_of(asked, now_ms())
        key = str(key_for(inbound, self._pipe.settings))
        leave = self._open.enter("chat completions", asked.caller.sender, self._settings.open_requests)
        pending = PendingAnswer(self._pipe, inbound, key, leave)
        try:
            await pending.listen()
            await self._settler.admit(inbound, asked.caller.sender)
            pending.accepted()
        except BaseException:
            await pending.close()
            raise
        return pending

    async def _whole(self, request: Request, about: Completion, pending: PendingAnswer) -> Response:
        """The answer in one piece. Nobody reads it where the caller has left before."""
        answer = asyncio.create_task(self._outcome(pending, request.app.state.stopping))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            return _response(about, answer.result()) if answer.done() else Response(status_code=204)
        finally:
            await end_tasks(answer, gone)
            await pending.close()

    async def _outcome(self, pending: PendingAnswer, stopping: asyncio.Event) -> AnswerNews:
        async for news in pending.news(self._settings.answer_seconds, stopping):
            last = news
        return last


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(about: Completion, last: AnswerNews) -> Response:
    match last:
        case AnswerEnded(text, failed, usage):
            return refused(500, text or FAILED) if failed else JSONResponse(about.whole(text, usage))
        case GaveUp(is_stopping):
            return refused(503, STOPPING) if is_stopping else refused(504, LATE)
        case _:
            raise AssertionError(type(last).__name__)

"""Reading through the HTTP API: where a message stands, and a session's replies.

A key opens its own conversations. Those of other keys and other platforms are not there for it, whether they exist or not.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.events import EventStream, follow_replies
from producers.api.keys import ApiKeys
from producers.api.open_requests import OpenRequests
from shared.clock import iso
from shared.errors import Malformed
from shared.lane_key import begins_as_conversation, conversation_of
from shared.pipeline import Pipeline
from shared.platforms.api import ApiSettings
from shared.reading.trace import reason_word, trace
from shared.session_key import SessionKey

_MESSAGE_ID = re.compile(r"in_[0-9a-f]{30}")
_EVENT_ID = re.compile(r"[0-9]{1,18}")


class ApiReader:
    """The routes that only look."""

    def __init__(self, pipe: Pipeline, keys: ApiKeys, open_requests: OpenRequests) -> None:
        self._pipe = pipe
        self._keys = keys
        self._open = open_requests
        self._most = pipe.settings.block(ApiSettings).open_streams

    async def get_message(self, request: Request) -> Response:
        caller = self._keys.check(request, "read")
        id = request.path_params["id"]
        found = await trace(self._pipe, id) if _MESSAGE_ID.fullmatch(id) else None
        key = conversation_of(found.session_key) if found is not None and found.session_key is not None else None
        # a message of somebody who was forgotten has no session key any more
        if found is None or key is None or not begins_as_conversation(key) or not caller.owns(SessionKey.parse(key)):
            return JSONResponse({"error": "no such message"}, 404)
        shown = {
            "id": found.id,
            "state": found.state,
            "session_key": key,
            "turn_id": found.turn_id,
            "attempts": found.attempts,
            "reason": reason_word(found.reason),
            "timings": {stage: iso(at) for stage, at in found.timings.items()},
        }
        return JSONResponse(shown)

    async def follow(self, request: Request) -> Response:
        """Server-sent events: each reply part of a session, from Last-Event-ID on. The key is percent-encoded in the path."""
        caller = self._keys.check(request, "read")
        key = SessionKey.parse(request.path_params["key"])
        if not caller.owns(key):
            return JSONResponse({"error": "no such session"}, 404)
        last = request.headers.get("last-event-id") or "0"
        if not _EVENT_ID.fullmatch(last):
            raise Malformed("Last-Event-ID is a number")
        if request.method == "HEAD":
            return Response(media_type=EventStream.media_type)
        leave = self._open.enter("event streams", caller.sender, self._most)
        source = follow_replies(self._pipe, str(key), int(last))
        return EventStream(source, request.app.state.stopping, leave)

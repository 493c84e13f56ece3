"""Reading through the HTTP API: where a message stands, and a session's replies.

A key opens the API's own conversations. Those of other platforms are not there for it, whether they exist or not.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.events import EventStream, follow_replies
from producers.api.keys import ApiKeys
from shared.clock import iso
from shared.errors import Malformed
from shared.lane_key import conversation_of
from shared.pipeline import Pipeline
from shared.platforms.api import NAME
from shared.reading.trace import reason_word, trace
from shared.session_key import SessionKey

_MESSAGE_ID = re.compile(r"in_[0-9a-f]{30}")
_EVENT_ID = re.compile(r"[0-9]{1,18}")


class ApiReader:
    """The routes that only look."""

    def __init__(self, pipe: Pipeline, keys: ApiKeys) -> None:
        self._pipe = pipe
        self._keys = keys

    async def get_message(self, request: Request) -> Response:
        self._keys.check(request)
        id = request.path_params["id"]
        found = await trace(self._pipe, id) if _MESSAGE_ID.fullmatch(id) else None
        if found is None or found.session_key is None or found.platform != NAME:
            return JSONResponse({"error": "no such message"}, 404)
        shown = {
            "id": found.id,
            "state": found.state,
            "session_key": conversation_of(found.session_key),
            "turn_id": found.turn_id,
            "attempts": found.attempts,
            "reason": reason_word(found.reason),
            "timings": {stage: iso(at) for stage, at in found.timings.items()},
        }
        return JSONResponse(shown)

    async def follow(self, request: Request) -> Response:
        """Server-sent events: each reply part of a session, from Last-Event-ID on. The key is percent-encoded in the path."""
        self._keys.check(request)
        key = SessionKey.parse(request.path_params["key"])
        if key.platform != NAME:
            return JSONResponse({"error": "no such session"}, 404)
        last = request.headers.get("last-event-id") or "0"
        if not _EVENT_ID.fullmatch(last):
            raise Malformed("Last-Event-ID is a number")
        if request.method == "HEAD":
            return Response(media_type=EventStream.media_type)
        source = follow_replies(self._pipe, str(key), int(last))
        return EventStream(source, request.app.state.stopping)

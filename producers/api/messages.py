"""The HTTP API: post a message, see where it stands, follow a session's replies.

A key opens the API's own conversations. Those of other platforms are not there for it, whether they exist or not.
"""

from __future__ import annotations

import hmac
import re
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.events import EventStream, follow_replies, replies
from producers.server import http
from producers.webhook.normalise import event_id_of, normalise, parse
from shared.clock import iso, now_ms
from shared.door import accept
from shared.errors import Denied, Malformed
from shared.lane_key import conversation_of
from shared.pipeline import Pipeline
from shared.reading.trace import reason_word, trace
from shared.session_key import SessionKey

__all__ = ["Api", "replies"]

PLATFORM = "api"
_MESSAGE_ID = re.compile(r"in_[0-9a-f]{30}")
_EVENT_ID = re.compile(r"[0-9]{1,18}")


class Api:
    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._keys = [key.get_secret_value().encode() for key in pipe.settings.api.keys]

    async def post_message(self, request: Request) -> Response:
        """202 once the message is kept, 200 when it was before. Malformed is 422 here: the caller is there to read it."""
        self._check(request)
        fields = parse(await http.read_body(request, self._pipe.settings))
        event_id = event_id_of(fields) or f"evt_{uuid4().hex}"
        acceptance = await accept(self._pipe, normalise(fields, PLATFORM, event_id, now_ms()))
        body = {"id": acceptance.id, "state": acceptance.state, "session_key": acceptance.session_key}
        return JSONResponse(body, 202 if acceptance.fresh else 200)

    async def get_message(self, request: Request) -> Response:
        self._check(request)
        id = request.path_params["id"]
        found = await trace(self._pipe, id) if _MESSAGE_ID.fullmatch(id) else None
        if found is None or found.session_key is None or found.platform != PLATFORM:
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
        self._check(request)
        key = SessionKey.parse(request.path_params["key"])
        if key.platform != PLATFORM:
            return JSONResponse({"error": "no such session"}, 404)
        last = request.headers.get("last-event-id") or "0"
        if not _EVENT_ID.fullmatch(last):
            raise Malformed("Last-Event-ID is a number")
        if request.method == "HEAD":
            return Response(media_type=EventStream.media_type)
        source = follow_replies(self._pipe, str(key), int(last))
        return EventStream(source, request.app.state.stopping)

    def _check(self, request: Request) -> None:
        """Denied unless the one Authorization header carries one of our keys."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        matches = [hmac.compare_digest(token.strip().encode("latin-1"), key) for key in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise Denied("bearer key")

"""The HTTP API: post a message, see where it stands, follow a session's replies."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import orjson
import redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from producers import http
from producers.intake import accept
from producers.webhook.normalise import normalise, parse
from shared import keys
from shared.clock import now_ms
from shared.errors import Denied, Malformed
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.trace import trace

PLATFORM = "api"
KEEP_ALIVE_SECONDS = 15.0


class Api:
    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._keys = [key.get_secret_value().encode() for key in pipe.settings.api.keys]

    async def post_message(self, request: Request) -> Response:
        self._check(request)
        fields = parse(await http.read_body(request, self._pipe.settings))
        event_id = fields.setdefault("id", f"evt_{uuid4().hex}")
        if not isinstance(event_id, str) or not 0 < len(event_id) <= 256:
            raise Malformed("id is text of at most 256 characters")
        acceptance = await accept(self._pipe, normalise(fields, PLATFORM, event_id, now_ms()))
        body = {"id": acceptance.id, "state": acceptance.state, "session_key": acceptance.session_key}
        return JSONResponse(body, 202 if acceptance.fresh else 200)

    async def get_message(self, request: Request) -> Response:
        self._check(request)
        found = await trace(self._pipe, request.path_params["id"])
        if found is None:
            return JSONResponse({"error": "no such message"}, 404)
        fields = ("id", "state", "session_key", "turn_id", "attempts", "reason", "timings")
        return JSONResponse({name: found[name] for name in fields})

    async def follow(self, request: Request) -> Response:
        """Server-sent events: each reply part of a session, from Last-Event-ID on."""
        self._check(request)
        key = SessionKey.parse(request.path_params["key"])
        last = request.headers.get("last-event-id", "0")
        if not last.isdigit() or len(last) > 18:
            raise Malformed("Last-Event-ID is a number")
        return StreamingResponse(follow_replies(self._pipe, str(key), int(last)), media_type="text/event-stream")

    def _check(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.encode()
        if scheme.lower() != "bearer" or sum(hmac.compare_digest(given, key) for key in self._keys) == 0:
            raise Denied("bearer")


async def replies(pipe: Pipeline, session_key: str, after: int) -> AsyncIterator[dict[str, Any] | None]:
    """The reply parts of a session, old and new, in order. None now and then, so that a reader sees the line is alive."""
    server = pipe.servers.of_key(session_key)
    client = server.connect()
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(keys.events(session_key))
        while True:
            rows = await pipe.store.outbox.of_session(session_key, after=after)
            for row in rows:
                after = row["id"]
                payload = orjson.loads(row["payload"])
                yield {"id": row["id"], "turn_id": row["turn_id"], **{k: payload[k] for k in _SHOWN}}
            if not rows:
                try:
                    heard = await pubsub.get_message(ignore_subscribe_messages=True, timeout=KEEP_ALIVE_SECONDS)
                except (redis.RedisError, OSError):
                    heard = None
                    await asyncio.sleep(1)
                if heard is None:
                    yield None


_SHOWN = ("in_reply_to", "part", "parts", "text", "media")


async def follow_replies(pipe: Pipeline, session_key: str, after: int) -> AsyncIterator[bytes]:
    async for reply in replies(pipe, session_key, after):
        if reply is None:
            yield b": alive\n\n"
        else:
            yield b"id: %d\nevent: reply\ndata: %s\n\n" % (reply["id"], orjson.dumps(reply))

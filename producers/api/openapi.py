"""What /openapi.json says of the API."""

from __future__ import annotations

from producers.server.openapi import MESSAGE_BODY, Schema, answer, errors, object_, operation
from shared.messages import State

_KEY: list[Schema] = [{"key": []}]
_ACCEPTED: Schema = object_(
    {
        "id": {"type": "string", "pattern": "^in_[0-9a-f]{30}$"},
        "state": {"enum": [state.value for state in State]},
        "session_key": {"type": "string"},
    },
    "id",
    "state",
    "session_key",
)
_STANDING: Schema = object_(
    {
        **_ACCEPTED["properties"],
        "turn_id": {"type": ["string", "null"]},
        "attempts": {"type": "integer"},
        "reason": {"type": ["string", "null"]},
        "timings": {"type": "object"},
    },
    "id",
    "state",
    "session_key",
)
POST_MESSAGE = operation(
    "Post a message.",
    {
        "202": answer("Kept; it will be answered.", _ACCEPTED),
        "200": answer("It was there before.", _ACCEPTED),
        **errors(400, 401, 408, 413, 422, 429, 503),
    },
    requestBody=MESSAGE_BODY,
    security=_KEY,
)
GET_MESSAGE = operation(
    "Where a message stands.",
    {"200": answer("Its state.", _STANDING), **errors(401, 404, 503)},
    parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
    security=_KEY,
)
FOLLOW = operation(
    "Follow a session's replies as server-sent events.",
    {
        "200": answer("Reply parts, old and new.", {"type": "string"}, "text/event-stream"),
        **errors(401, 404, 422),
    },
    parameters=[
        {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
    ],
    security=_KEY,
)

"""What /openapi.json says of the API."""

from __future__ import annotations

from producers.api.chat.request import MESSAGES_LIMIT
from producers.server.openapi import MESSAGE_BODY, Schema, answer, errors, named, object_, operation
from shared.announcing import TEXT_LIMIT
from shared.messages import State
from shared.targets import TARGETS_LIMIT

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
        **errors(400, 401, 403, 408, 413, 422, 429, 503),
    },
    requestBody=MESSAGE_BODY,
    security=_KEY,
)
GET_MESSAGE = operation(
    "Where a message stands.",
    {"200": answer("Its state.", _STANDING), **errors(401, 403, 404, 503)},
    parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
    security=_KEY,
)
_SCALE: Schema = object_(
    {
        "work": {"type": "integer", "minimum": 0},
        "running": {"type": "integer", "minimum": 0},
        "ready": {"type": "integer", "minimum": 0},
        "ready_seconds": {"type": "number", "minimum": 0},
    },
    *("work", "running", "ready", "ready_seconds"),
)
GET_SCALE = operation(
    "How much work there is for workers.",
    {"200": answer("Of the whole deployment.", _SCALE), **errors(401, 403, 503)},
    security=_KEY,
)
_DELIVERY: Schema = object_(
    {
        "id": {"type": "string", "minLength": 1, "maxLength": 256},
        "to": {
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": TARGETS_LIMIT},
            ]
        },
        "text": {"type": "string", "minLength": 1, "maxLength": TEXT_LIMIT},
    },
    "to",
    "text",
)
_TOLD: Schema = object_(
    {
        "target": {"type": "string"},
        "outcome": {"enum": ["accepted", "known", "saved", "filtered", "refused"]},
        "id": {"type": "string", "pattern": "^in_[0-9a-f]{30}$"},
        "state": {"enum": [state.value for state in State]},
        "reason": {"type": "string"},
    },
    "target",
    "outcome",
)
_DELIVERIES: Schema = object_({"deliveries": {"type": "array", "items": _TOLD}}, "deliveries")
POST_DELIVERY = operation(
    "Say something in chats that API__DELIVER_TO lists, without a question.",
    {
        "202": answer("Kept for at least one target; each says how it stands.", _DELIVERIES),
        "200": answer("All targets had it before.", _DELIVERIES),
        **errors(400, 401, 408, 413, 429, 503),
        "422": answer("Cannot be understood, or no target could be told.", {"anyOf": [named("Error"), _DELIVERIES]}),
    },
    requestBody={"required": True, "content": {"application/json": {"schema": _DELIVERY}}},
    security=_KEY,
)
FOLLOW = operation(
    "Follow a session's replies as server-sent events.",
    {
        "200": answer("Reply parts, old and new.", {"type": "string"}, "text/event-stream"),
        **errors(401, 403, 404, 422),
    },
    parameters=[
        {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
    ],
    security=_KEY,
)
_MODEL: Schema = object_(
    {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
    },
    "id",
    "object",
    "created",
    "owned_by",
)
_OPENAI_ERROR: Schema = object_(
    {
        "error": object_(
            {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": "null"},
                "code": {"type": ["string", "null"]},
            },
            "message",
            "type",
            "param",
            "code",
        )
    },
    "error",
)
_CHAT: Schema = {
    "type": "object",
    "properties": {
        "model": {"type": ["string", "null"], "description": "One of /v1/models."},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MESSAGES_LIMIT,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
                    "content": {"type": ["string", "array", "null"]},
                },
                "required": ["role"],
            },
        },
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {"type": ["object", "null"]},
        "metadata": {"type": ["object", "null"]},
        "user": {"type": ["string", "null"]},
    },
    "required": ["messages"],
}


def _openai_errors(*statuses: int) -> Schema:
    described = errors(*statuses)
    for found in described.values():
        found["content"] = {"application/json": {"schema": _OPENAI_ERROR}}
    return described


COMPLETE = operation(
    "Ask for an answer in OpenAI's form. Headers may name the conversation: see docs/api.md.",
    {
        "200": {
            "description": "The answer, or with `stream` its pieces.",
            "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {}}},
        },
        **_openai_errors(400, 401, 403, 404, 408, 413, 429, 500, 503, 504),
    },
    requestBody={"required": True, "content": {"application/json": {"schema": _CHAT}}},
    security=_KEY,
)
LIST_MODELS = operation(
    "The agents that may be chosen.",
    {
        "200": answer(
            "All of them.",
            object_({"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}}, "object", "data"),
        ),
        **_openai_errors(401, 403),
    },
    security=_KEY,
)
GET_MODEL = operation(
    "One of them.",
    {"200": answer("It is there.", _MODEL), **_openai_errors(401, 403, 404)},
    parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
    security=_KEY,
)
PREFLIGHT = operation("What a browser asks before it calls.", {"204": answer("What a web page may do.")})

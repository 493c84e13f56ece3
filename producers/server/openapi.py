"""What the HTTP surface says of itself at /openapi.json, for the routes that are there. Tests hold the two to each other."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from producers.webhook.normalise import MEDIA_LIMIT, NAME_LIMIT, TEXT_LIMIT
from shared import VERSION
from shared.messages import CHAT_TYPES, State

Schema = dict[str, Any]
_HIDDEN = frozenset({"HEAD", "OPTIONS"})  # follow from GET


def describe(routes: Set[tuple[str, str]]) -> Schema:
    """The OpenAPI document of these (path, method) pairs; a KeyError for one that nobody has described."""
    paths: dict[str, Schema] = {}
    for path, method in sorted(routes):
        if method not in _HIDDEN:
            shown = path.replace(":path", "")
            paths.setdefault(shown, {})[method.lower()] = _OPERATIONS[shown, method]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keyturn", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {"Message": _MESSAGE, "Accepted": _ACCEPTED, "Standing": _STANDING, "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _object(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _answer(text: str, schema: Schema | None = None, media: str = "application/json") -> Schema:
    return {"description": text} | ({"content": {media: {"schema": schema}}} if schema is not None else {})


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _errors(*statuses: int) -> Schema:
    return {str(status): _answer(_MEANINGS[status], _named("Error")) for status in statuses}


def _operation(summary: str, answers: Schema, **rest: Any) -> Schema:
    return {"summary": summary, "responses": answers, **rest}


def _head(name: str, pattern: str, text: str) -> Schema:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": True, "description": text, "schema": schema}


_MEANINGS = {
    400: "The body was not complete.",
    401: "Not signed for us, or no key.",
    404: "No such message, or no such path.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    422: "Cannot be understood; the text says which field.",
    429: "Too many messages wait in this chat, or too many unfinished requests of this address: see Retry-After.",
    503: "A store is away: see Retry-After.",
}
# An id may be written as a number; null and the empty text are as good as nothing. Its limit is 256 bytes of UTF-8.
_ID: Schema = {"type": ["string", "integer", "null"], "maxLength": 256, "pattern": "^[^\\u0000]*$"}
_NEEDED_ID: Schema = {"type": ["string", "integer"], "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000]*$"}
_NAME: Schema = {"type": ["string", "null"], "maxLength": NAME_LIMIT}
_MEDIA: Schema = _object(
    {
        "url": {"type": "string", "pattern": "^https?://", "maxLength": 4096, "description": "Never fetched."},
        "type": _NAME,
        "name": _NAME,
    },
    "url",
)
_MESSAGE: Schema = {
    **_object(
        {
            "id": {**_ID, "description": "The event's own id: a message with an id that is known is taken once."},
            "chat": _object(
                {
                    "id": _NEEDED_ID,
                    "type": {"enum": [*sorted(CHAT_TYPES), None]},
                    "name": _NAME,
                    "topic": _NAME,
                },
                "id",
            ),
            "user": _object({"id": _NEEDED_ID, "name": _NAME}, "id"),
            "thread": _ID,
            "text": {"type": ["string", "null"], "maxLength": TEXT_LIMIT},
            "media": {"type": ["array", "null"], "items": _MEDIA, "maxItems": MEDIA_LIMIT},
            "reply_to": _ID,
            "mentioned": {"type": ["boolean", "null"]},
            "sent_at": {"type": ["string", "null"], "format": "date-time"},
        },
        "chat",
        "user",
    ),
    "anyOf": [
        {"required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        {"required": ["media"], "properties": {"media": {"type": "array", "minItems": 1}}},
    ],
}
_ACCEPTED: Schema = _object(
    {
        "id": {"type": "string", "pattern": "^in_[0-9a-f]{30}$"},
        "state": {"enum": [state.value for state in State]},
        "session_key": {"type": "string"},
    },
    "id",
    "state",
    "session_key",
)
_STANDING: Schema = _object(
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
_ERROR: Schema = _object({"error": {"type": "string"}}, "error")
_TAKEN: Schema = _object(
    {
        "status": {"enum": ["accepted", "duplicate", "recorded"]},
        "id": {"type": "string"},
        "reason": {"type": "string"},
    },
    "status",
)
_BODY: Schema = {"required": True, "content": {"application/json": {"schema": _named("Message")}}}
_KEY: list[Schema] = [{"key": []}]
_READY: Schema = {"type": "object"}

_OPERATIONS: dict[tuple[str, str], Schema] = {
    ("/v1/messages", "POST"): _operation(
        "Post a message.",
        {
            "202": _answer("Kept; it will be answered.", _named("Accepted")),
            "200": _answer("It was there before.", _named("Accepted")),
            **_errors(400, 401, 408, 413, 422, 429, 503),
        },
        requestBody=_BODY,
        security=_KEY,
    ),
    ("/v1/messages/{id}", "GET"): _operation(
        "Where a message stands.",
        {"200": _answer("Its state.", _named("Standing")), **_errors(401, 404, 503)},
        parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
        security=_KEY,
    ),
    ("/v1/sessions/{key}/events", "GET"): _operation(
        "Follow a session's replies as server-sent events.",
        {
            "200": _answer("Reply parts, old and new.", {"type": "string"}, "text/event-stream"),
            **_errors(401, 404, 422),
        },
        parameters=[
            {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
        ],
        security=_KEY,
    ),
    ("/webhooks/webhook", "POST"): _operation(
        "A message signed as Standard Webhooks.",
        {
            "200": _answer("Accepted, known before, or recorded because it cannot be understood.", _TAKEN),
            **_errors(400, 401, 408, 413, 429, 503),
        },
        parameters=[
            _head("webhook-id", "^[ -~]{1,256}$", "Signed with the body."),
            _head("webhook-timestamp", "^[1-9][0-9]{0,11}$", "Seconds since 1970, within five minutes of now."),
            _head("webhook-signature", "v1,[A-Za-z0-9+/]{43}=", 'HMAC-SHA256 of "id.timestamp.body", base64.'),
        ],
        requestBody=_BODY,
    ),
    ("/healthz", "GET"): _operation("The process lives.", {"200": _answer("It does.", _READY)}),
    ("/readyz", "GET"): _operation(
        "The stores answer.", {"200": _answer("They do.", _READY), "503": _answer("One does not.", _READY)}
    ),
    ("/metrics", "GET"): _operation(
        "For Prometheus.", {"200": _answer("Counters and gauges.", {"type": "string"}, "text/plain")}
    ),
}

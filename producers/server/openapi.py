"""What the HTTP surface says of itself at /openapi.json, for the routes that are there. Tests hold the two to each other.

Each platform describes its own routes with the words of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.message_body import MEDIA_LIMIT, NAME_LIMIT, TEXT_LIMIT
from shared import VERSION
from shared.messages import CHAT_TYPES

Schema = dict[str, Any]


def describe(operations: Mapping[tuple[str, str], Schema]) -> Schema:
    """The OpenAPI document of these operations, each by its path and method."""
    paths: dict[str, Schema] = {}
    for path, method in sorted(operations):
        paths.setdefault(path.replace(":path", ""), {})[method.lower()] = operations[path, method]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keyturn", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {"Message": _MESSAGE, "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def object_(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def answer(text: str, schema: Schema | None = None, media: str = "application/json") -> Schema:
    return {"description": text} | ({"content": {media: {"schema": schema}}} if schema is not None else {})


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def errors(*statuses: int) -> Schema:
    return {str(status): answer(_MEANINGS[status], named("Error")) for status in statuses}


def operation(summary: str, answers: Schema, **rest: Any) -> Schema:
    return {"summary": summary, "responses": answers, **rest}


_MEANINGS = {
    400: "The body was not complete.",
    401: "Not signed for us, or no key.",
    403: "The key may not be used for that.",
    404: "No such message, or no such path.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    422: "Cannot be understood; the text says which field.",
    429: "Too many messages wait in this chat, or too many unfinished requests of this address: see Retry-After.",
    500: "The message could not be answered.",
    503: "A store is away: see Retry-After.",
    504: "No answer came in time.",
}
# An id may be written as a number; null and the empty text are as good as nothing. Its limit is 256 bytes of UTF-8.
_ID: Schema = {"type": ["string", "integer", "null"], "maxLength": 256, "pattern": "^[^\\u0000]*$"}
_NEEDED_ID: Schema = {"type": ["string", "integer"], "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000]*$"}
_NAME: Schema = {"type": ["string", "null"], "maxLength": NAME_LIMIT}
_MEDIA: Schema = object_(
    {
        "url": {
            "type": "string",
            "pattern": "^https?://",
            "maxLength": 4096,
            "description": "Public; fetched before the turn.",
        },
        "type": _NAME,
        "name": _NAME,
    },
    "url",
)
_MESSAGE: Schema = {
    **object_(
        {
            "id": {**_ID, "description": "The event's own id: a message with an id that is known is taken once."},
            "chat": object_(
                {
                    "id": _NEEDED_ID,
                    "type": {"enum": [*sorted(CHAT_TYPES), None]},
                    "name": _NAME,
                    "topic": _NAME,
                },
                "id",
            ),
            "user": object_({"id": _NEEDED_ID, "name": _NAME}, "id"),
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
_ERROR: Schema = object_({"error": {"type": "string"}}, "error")
MESSAGE_BODY: Schema = {"required": True, "content": {"application/json": {"schema": named("Message")}}}
_READY: Schema = {"type": "object"}

OPERATIONS: Mapping[tuple[str, str], Schema] = {
    ("/healthz", "GET"): operation("The process lives.", {"200": answer("It does.", _READY)}),
    ("/readyz", "GET"): operation(
        "The stores answer.", {"200": answer("They do.", _READY), "503": answer("One does not.", _READY)}
    ),
    ("/metrics", "GET"): operation(
        "For Prometheus.", {"200": answer("Counters and gauges.", {"type": "string"}, "text/plain")}
    ),
}

"""What /openapi.json says of the generic webhook."""

from __future__ import annotations

from producers.server.openapi import MESSAGE_BODY, Schema, answer, errors, object_, operation


def _header(name: str, pattern: str, text: str) -> Schema:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": True, "description": text, "schema": schema}


_TAKEN: Schema = object_(
    {
        "status": {"enum": ["accepted", "duplicate", "recorded"]},
        "id": {"type": "string"},
        "reason": {"type": "string"},
    },
    "status",
)
RECEIVE = operation(
    "A message signed as Standard Webhooks.",
    {
        "200": answer("Accepted, known before, or recorded because it cannot be understood.", _TAKEN),
        **errors(400, 401, 408, 413, 429, 503),
    },
    parameters=[
        _header("webhook-id", "^[ -~]{1,256}$", "Signed with the body."),
        _header("webhook-timestamp", "^[1-9][0-9]{0,11}$", "Seconds since 1970, within five minutes of now."),
        _header("webhook-signature", "v1,[A-Za-z0-9+/]{43}=", 'HMAC-SHA256 of "id.timestamp.body", base64.'),
    ],
    requestBody=MESSAGE_BODY,
)

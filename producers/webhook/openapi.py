"""What /openapi.json says of the generic webhook."""

from __future__ import annotations

import re

from producers.server.openapi import MESSAGE_BODY, Schema, answer, errors, object_, operation
from shared.platforms.webhook_scheme import WebhookScheme


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
_STANDARD = [
    _header("webhook-id", "^[ -~]{1,256}$", "Signed with the body."),
    _header("webhook-timestamp", "^[1-9][0-9]{0,11}$", "Seconds since 1970, within five minutes of now."),
    _header("webhook-signature", "v1,[A-Za-z0-9+/]{43}=", 'HMAC-SHA256 of "id.timestamp.body", base64.'),
]


def receive_operation(scheme: WebhookScheme | None) -> Schema:
    """The operation where requests are proved so; no scheme: by Standard Webhooks."""
    return operation(
        "A message signed as Standard Webhooks." if scheme is None else "A message with a signature or token.",
        {
            "200": answer("Accepted, known before, or recorded because it cannot be understood.", _TAKEN),
            **errors(400, 401, 408, 413, 429, 503),
        },
        parameters=_STANDARD if scheme is None else _headers_of(scheme),
        requestBody=MESSAGE_BODY,
    )


def _headers_of(scheme: WebhookScheme) -> list[Schema]:
    signed = f"HMAC-{scheme.signature_digest.upper()} of {scheme.signed_content}, {scheme.signature_encoding}."
    about = signed if scheme.signature_digest else "The secret."
    prefix = re.escape(scheme.signature_prefix)
    found = [_header(scheme.signature_header.lower(), f"{prefix}[!-~]+", about)]
    if scheme.timestamp_header is not None:
        found.append(_header(scheme.timestamp_header.lower(), "^[1-9][0-9]{0,11}$", "Seconds since 1970."))
    if scheme.id_header is not None:
        by_body = "{id}" not in scheme.signed_content
        found.append(
            {**_header(scheme.id_header.lower(), "^[ -~]{1,256}$", "The event's id."), "required": not by_body}
        )
    return found


RECEIVE = receive_operation(None)

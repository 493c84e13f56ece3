"""Standard Webhooks signatures: HMAC-SHA256 over "id.timestamp.body", base64, behind "v1,"."""

from __future__ import annotations

import base64
import hmac
import re
import time

from pydantic import SecretStr

from shared.errors import ConfigurationError, Denied

TOLERANCE_SECONDS = 300
ID_LIMIT = 256
SIGNATURES_LIMIT = 8  # a sender that rotates its secret gives one for each
_SIGNATURE = re.compile(r"(?:^| )v1,[A-Za-z0-9+/]{43}=(?: |$)")
_SECONDS = re.compile(r"[1-9][0-9]{0,11}")  # one way to write a number: what is signed is what was sent


def decode_secret(secret: SecretStr) -> bytes:
    """The key bytes of a `whsec_…` secret."""
    text = secret.get_secret_value()
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:  # not base64, or not even ASCII
        key = b""
    if not text.startswith("whsec_") or len(key) < 16:
        raise ConfigurationError("a secret is whsec_ and at least 16 bytes in base64")
    return key


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


def check_head(id: str, timestamp: str) -> None:
    """Denied unless id and time can be those of a fresh request: worth asking before its body is read."""
    if not 0 < len(id) <= ID_LIMIT or not id.isascii() or not id.isprintable():
        raise Denied("id")
    if not _SECONDS.fullmatch(timestamp) or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        raise Denied("timestamp")


def check_form(signatures: str) -> None:
    """Denied unless one of the signatures could be ours: worth asking before a body is read."""
    if not _SIGNATURE.search(signatures):
        raise Denied("signature")

"""Standard Webhooks signatures: HMAC-SHA256 over "id.timestamp.body", base64, behind "v1,"."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Sequence

from pydantic import SecretStr

from shared.errors import ConfigurationError, Denied

TOLERANCE_SECONDS = 300
_DIGITS = re.compile(r"[0-9]{1,12}")


def decode_secret(secret: SecretStr) -> bytes:
    """The key bytes of a `whsec_…` secret."""
    text = secret.get_secret_value()
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith("whsec_") or len(key) < 16:
        raise ConfigurationError("WEBHOOK__SECRETS: a secret is whsec_ and at least 16 bytes in base64")
    return key


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def verify(secrets: Sequence[bytes], id: str, timestamp: str, signatures: str, body: bytes) -> None:
    """Denied unless one of the signatures is ours and the request is fresh. Takes the same time whichever is wrong."""
    if not id or len(id) > 256 or not id.isprintable() or not id.isascii():
        raise Denied("id")
    if not _DIGITS.fullmatch(timestamp) or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        raise Denied("timestamp")
    given = [signature.encode() for signature in signatures.split(" ")[:8]]
    expected = [sign(key, id, int(timestamp), body).encode() for key in secrets]
    matches = [hmac.compare_digest(a, b) for a in given for b in expected]
    if not any(matches):
        raise Denied("signature")

"""Slack's signature: HMAC-SHA256 over "v0:time:body", in hex, behind "v0=". The same for JSON and for forms."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from producers.mac import Mac
from producers.receiving import require_equal, require_fresh
from shared.errors import Denied

TOLERANCE_SECONDS = 300
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    return "v0=" + hmac.digest(secret, f"v0:{timestamp}:".encode() + body, "sha256").hex()


def check_head(timestamp: str, signature: str) -> None:
    """Denied unless these can be those of a fresh request: worth asking before its body is read."""
    require_fresh(timestamp, TOLERANCE_SECONDS)
    if not _SIGNATURE.fullmatch(signature):
        raise Denied("signature")


def verify(secrets: Sequence[Mac], timestamp: str, signature: str, body: bytes) -> None:
    """Denied unless the request is fresh and one of the secrets signed these very bytes."""
    require_fresh(timestamp, TOLERANCE_SECONDS)
    head = f"v0:{timestamp}:".encode()
    require_equal("signature", signature, [b"v0=" + secret.of(head, body).hex().encode() for secret in secrets])

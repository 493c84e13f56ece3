"""How a request to the generic webhook is proved: Standard Webhooks, a signature by another scheme, or a token in a header.

Every comparison is made with every secret and takes the same time, whatever was sent.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Protocol

from starlette.requests import Request

from producers.mac import Mac
from producers.receiving import only_header, require_fresh
from shared import signing
from shared.errors import Denied
from shared.platforms.webhook_scheme import SEPARATORS, WebhookScheme
from shared.value import value

_TIME = "t="  # before the time, where it stands beside the signatures


@value
class WebhookSigned:
    """What a request says was signed, and how."""

    id: str
    timestamp: str
    signatures: str


class WebhookProof(Protocol):
    """One way to prove requests, with any of several secrets."""

    needs_body: bool  # the body is part of the proof

    def head(self, request: Request) -> WebhookSigned:
        """Denied unless the headers can be those of a fresh request. Asked before the body is read."""

    def check(self, head: WebhookSigned, body: bytes) -> None:
        """Denied unless a secret proves the request, its body byte for byte."""

    def key(self, head: WebhookSigned, body: bytes) -> bytes:
        """The secret that proves a request which was checked."""


class StandardProof(WebhookProof):
    """Standard Webhooks."""

    needs_body = True

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keyed = [(key, Mac(key)) for key in keys]

    def head(self, request: Request) -> WebhookSigned:
        id, timestamp = only_header(request, "webhook-id"), only_header(request, "webhook-timestamp")
        signatures = only_header(request, "webhook-signature")
        signing.check_head(id, timestamp)
        signing.check_form(signatures)
        return WebhookSigned(id, timestamp, signatures)

    def check(self, head: WebhookSigned, body: bytes) -> None:
        require_fresh(head.timestamp, signing.TOLERANCE_SECONDS)
        self.key(head, body)

    def key(self, head: WebhookSigned, body: bytes) -> bytes:
        begins = f"{head.id}.{head.timestamp}.".encode()
        given = [signature.encode() for signature in head.signatures.split(" ")[: signing.SIGNATURES_LIMIT]]
        expected = [(key, b"v1," + base64.b64encode(mac.of(begins, body))) for key, mac in self._keyed]
        proving = [key for key, one in expected for each in given if hmac.compare_digest(each, one)]
        if not proving:
            raise Denied("signature")
        return proving[0]


class SchemeProof(WebhookProof):
    """An HMAC over body, time and id, as a scheme says."""

    needs_body = True

    def __init__(self, scheme: WebhookScheme, keys: Sequence[bytes]) -> None:
        self._scheme = scheme
        self._keys = keys
        self._length = len(self._sign(b"k", b""))

    def head(self, request: Request) -> WebhookSigned:
        scheme = self._scheme
        header = only_header(request, scheme.signature_header)
        written = SEPARATORS.split(header) if scheme.takes_several else [header]
        signatures = [entry.removeprefix(scheme.signature_prefix) for entry in written if self._may_be(entry)]
        if not 0 < len(signatures) <= signing.SIGNATURES_LIMIT:
            raise Denied("signature")
        timestamp = self._timestamp(request, written) if scheme.is_timed else ""
        return WebhookSigned(_id(request, scheme), timestamp, " ".join(signatures))

    def check(self, head: WebhookSigned, body: bytes) -> None:
        self.key(head, body)

    def key(self, head: WebhookSigned, body: bytes) -> bytes:
        content = self._scheme.signed(head.id, head.timestamp, body)
        given = [signature.encode() for signature in head.signatures.split(" ")]
        expected = [(key, self._sign(key, content)) for key in self._keys]
        proving = [key for key, one in expected for each in given if hmac.compare_digest(each, one)]
        if not proving:
            raise Denied("signature")
        return proving[0]

    def _may_be(self, entry: str) -> bool:
        prefix = self._scheme.signature_prefix
        return entry.isascii() and entry.startswith(prefix) and len(entry) - len(prefix) == self._length

    def _timestamp(self, request: Request, written: Sequence[str]) -> str:
        header = self._scheme.timestamp_header
        times = [entry.removeprefix(_TIME) for entry in written if entry.startswith(_TIME)]
        if header is None and len(times) != 1:
            raise Denied("timestamp")
        timestamp = times[0] if header is None else only_header(request, header)
        require_fresh(timestamp, self._scheme.tolerance_seconds)
        return timestamp

    def _sign(self, key: bytes, content: bytes) -> bytes:
        digest = hmac.digest(key, content, self._scheme.signature_digest)
        return base64.b64encode(digest) if self._scheme.signature_encoding == "base64" else digest.hex().encode()


class TokenProof(WebhookProof):
    """The secret itself, in a header. It says nothing about the body: use it where the connection is encrypted."""

    needs_body = False

    def __init__(self, scheme: WebhookScheme, keys: Sequence[bytes]) -> None:
        self._scheme = scheme
        self._keys = keys

    def head(self, request: Request) -> WebhookSigned:
        given, prefix = only_header(request, self._scheme.signature_header), self._scheme.signature_prefix
        if not given.startswith(prefix):
            raise Denied("token")
        head = WebhookSigned(_id(request, self._scheme), "", given.removeprefix(prefix))
        self.key(head, b"")
        return head

    def check(self, head: WebhookSigned, body: bytes) -> None:
        """The head was."""

    def key(self, head: WebhookSigned, body: bytes) -> bytes:
        given = head.signatures.encode("latin-1", "replace")
        matches = [key for key in self._keys if hmac.compare_digest(given, key)]
        if not matches:
            raise Denied("token")
        return matches[0]


def proof_by(scheme: WebhookScheme | None, keys: Sequence[bytes]) -> WebhookProof:
    """How requests are proved where this is set; no scheme: Standard Webhooks."""
    if scheme is None:
        return StandardProof(keys)
    return SchemeProof(scheme, keys) if scheme.signature_digest else TokenProof(scheme, keys)


def _id(request: Request, scheme: WebhookScheme) -> str:
    """The event's id, as far as a header names it; the body may, too."""
    if scheme.id_header is None or (scheme.id_header not in request.headers and "{id}" not in scheme.signed_content):
        return ""
    id = only_header(request, scheme.id_header)
    if not 0 < len(id) <= signing.ID_LIMIT or not id.isascii() or not id.isprintable():
        raise Denied("id")
    return id

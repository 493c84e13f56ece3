"""Step 1 for every platform that tells us by webhook: check → parse → normalise → admit → settle.

A 2xx means that everything in the request is settled: anything else brings it again, and what was accepted before ends as a
duplicate. After a crash at any point no 2xx was sent, so nothing is lost.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from producers.heard import Event
from producers.server.body import read_body, read_unverified_body
from producers.settling import Settled, Settler, Understanding
from shared.errors import Denied, Malformed
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS

Head = TypeVar("Head")
_SECONDS = re.compile(r"[1-9][0-9]{0,11}")  # one way to write a number: what is signed is what was sent


class Receiver(Understanding, Protocol[Head]):
    """What a platform writes to be told by webhook. `Head` is all that it needs of a request beside the body."""

    body_is_signed: bool  # who sends is known only when the body was read: then it is read under stricter limits
    records_malformed: bool = (
        True  # False: the caller reads our answer, so what cannot be understood is refused with 422
    )
    brings_several: bool = False  # a request holds events of several chats: a full one must not hold up the others

    def check_head(self, request: Request) -> Head:
        """Denied unless the head can be that of a request of the platform's. Asked before the body is read."""

    def check_body(self, head: Head, body: bytes) -> None:
        """Denied unless the body, byte for byte, is what the platform signed."""
        assert not self.body_is_signed

    def sender(self, head: Head, body: bytes) -> str:
        """Which of several secrets the request came with: a name that tells nothing of the secret. Asked where senders
        have quotas."""
        return ""

    async def parse(self, head: Head, body: bytes) -> Sequence[Event] | Response:
        """The events in a request, in order; or the answer to a handshake. Malformed for what cannot be read at all."""

    def answer(self, settled: Sequence[Settled]) -> Response:
        """What the platform hears when every event of its request is settled."""

    def answer_to(self, events: Sequence[Event], settled: Sequence[Settled]) -> Response:
        """The same, where the answer depends on what the events were."""
        return self.answer(settled)


class Reception(Generic[Head]):
    """The route of one receiver."""

    def __init__(self, pipe: Pipeline, receiver: Receiver[Head]) -> None:
        redelivers = PLATFORMS[receiver.name].redelivers
        self._settings = pipe.settings
        self._receiver = receiver
        self._settler = Settler(
            pipe,
            receiver,
            sets_aside_when_full=receiver.brings_several or not redelivers,
            records_malformed=receiver.records_malformed,
        )

    async def receive(self, request: Request) -> Response:
        """Answer a request. Raises what http.py turns into 401, 413, 429 and 503."""
        receiver = self._receiver
        head = receiver.check_head(request)
        read = read_unverified_body if receiver.body_is_signed else read_body
        body = await read(request, self._settings)
        receiver.check_body(head, body)
        try:
            events = await receiver.parse(head, body)
        except Malformed as error:
            if not receiver.records_malformed:
                raise
            return receiver.answer([await self._settler.record("", body, str(error))])
        if isinstance(events, Response):
            return events
        if self._settler.counts_senders and (sender := receiver.sender(head, body)):
            events = [replace(event, sender=sender) for event in events]
        return receiver.answer_to(events, [await self._settler.settle(event) for event in events])


def only_header(request: Request, name: str) -> str:
    """A header that must be there once: of two, nobody could say which one was meant. Denied otherwise."""
    key, found = name.lower().encode(), None
    for known, value in request.scope["headers"]:
        if known == key:
            if found is not None:
                raise Denied(name)
            found = value
    if found is None:
        raise Denied(name)
    return str(found, "latin-1")


def secret_name(secret: bytes) -> str:
    """A name for one of several secrets that tells nothing of it."""
    return blake2b(secret, digest_size=16, person=b"keyturn sender").hexdigest()


def require_equal(what: str, given: str, expected: Iterable[bytes]) -> None:
    """Denied unless what was given equals one of those. How long it takes tells nothing of any of them."""
    matches = [hmac.compare_digest(given.encode("latin-1", "replace"), one) for one in expected]
    if not any(matches):
        raise Denied(what)


def require_fresh(timestamp: str, seconds: int) -> None:
    """Denied unless a time in whole seconds since 1970 is no further away than that."""
    if not _SECONDS.fullmatch(timestamp) or abs(time.time() - int(timestamp)) > seconds:
        raise Denied("timestamp")

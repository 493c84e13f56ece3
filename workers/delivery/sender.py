"""What a platform writes so that replies reach it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from shared.messages import Part, Receipt, Source
from shared.platforms.facts import Idempotency


class Sender(Protocol):
    """Sends parts. Every call is one attempt: retries, waits and records are the delivery's."""

    idempotency: Idempotency

    async def send(self, part: Part) -> Receipt:
        """Send once and return the receipt. Raises what tells the delivery what to do:

        RateLimited: wait as long as asked. Transient: it did not arrive, try again. Ambiguous: it may have arrived.
        Denied: the platform refuses our credentials, so replies wait. Undeliverable: refused for good.
        """


@runtime_checkable
class ShowsTyping(Protocol):
    """A Sender that can show that an answer is coming."""

    async def typing(self, source: Source) -> None:
        """Show it for some seconds. Never fails, never takes long."""

"""What a platform writes so that replies reach it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from shared.address import Address
from shared.messages import Part, Receipt
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
class Edits(Protocol):
    """A Sender that can change what it sent."""

    async def edit(self, part: Part) -> Receipt:
        """Change the message `part.edits` to this part, once, and return its receipt. Raises as `send` does.

        The same change again is no error. A message that cannot be changed any more is sent anew: no text is lost.
        """


@runtime_checkable
class ShowsTyping(Protocol):
    """A Sender that can show that an answer is coming."""

    async def typing(self, to: Address) -> None:
        """Show it for some seconds. Never fails, never takes long."""

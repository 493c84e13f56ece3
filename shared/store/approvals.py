"""Who was let in by pairing, kept in memory by producers: they ask for each message, and read the database now and then.

Only what a process can trust is kept. While it hears of every change (`trust`), an answer counts for a short time and is
forgotten when anything changed. While it does not (`distrust`), each question is a read. So a person whose approval was
taken back is refused with their next message, and an outage of Redis costs reads, never a wrong answer.
"""

from __future__ import annotations

import time
from datetime import timedelta

from shared.store.pairing import PairingPerson, Pairings

LIFETIME = timedelta(seconds=10)
MOST_KEPT = 10_000  # answers; the oldest leave first


class Approvals:
    """Whether people were let in."""

    def __init__(self, pairings: Pairings) -> None:
        self._pairings = pairings
        self._known: dict[tuple[str, str, str | None], tuple[bool, float]] = {}
        self.trusted = False  # whether this process hears of every change
        self._changes = 0

    async def has(self, person: PairingPerson) -> bool:
        """Whether the person was let in. Unavailable when only the database knows and it does not answer."""
        place = (person.platform, person.user_id, person.user_alt)
        approved, until = self._known.get(place, (False, 0.0))
        if time.monotonic() < until:
            return approved
        changes = self._changes
        approved = await self._pairings.is_approved(person)
        if self.trusted and changes == self._changes:  # else the answer may be older than the change
            self._known.pop(place, None)
            self._known[place] = (approved, time.monotonic() + LIFETIME.total_seconds())
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
        return approved

    @property
    def remembers(self) -> int:
        """How many answers are kept."""
        return len(self._known)

    def trust(self) -> None:
        """From now on this process hears of every change."""
        self.forget()
        self.trusted = True

    def distrust(self) -> None:
        """This process may miss changes from now on."""
        self.trusted = False
        self.forget()

    def forget(self) -> None:
        """Somebody was let in, or is no longer."""
        self._changes += 1
        self._known.clear()

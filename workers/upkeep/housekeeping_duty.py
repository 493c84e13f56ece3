"""What the housekeeper asks of each of its duties."""

from __future__ import annotations

from typing import Protocol

AT_ONCE = 500  # keys, rows or jobs that a duty asks a store for in one call


class HousekeepingDuty(Protocol):
    """Something that is looked at again and again. Every look begins anew, so one may fail or be cut short anywhere."""

    @property
    def every_seconds(self) -> float:
        """The longest pause between two looks, and the pause after one that failed."""
        ...

    async def look(self) -> float:
        """Do what is to be done now. Gives the seconds until the next look."""
        ...

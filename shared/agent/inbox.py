"""Mail that comes in while a turn runs, and that the turn may take."""

from __future__ import annotations

from typing import Protocol

from shared.messages import Inbound


class Inbox(Protocol):
    """What waits for the running turn. Taken mail stays mail until the agent yields `Took` for it."""

    def waiting(self) -> int:
        """How much could be taken now. Costs nothing."""

    async def take(self, most: int = 3) -> tuple[Inbound, ...]:
        """The next waiting mail, oldest first."""

    def given(self, id: str) -> Inbound | None:
        """The message of that id, if `take` gave it in this turn."""


class EmptyInbox:
    """An inbox that never has mail: every message waits for a turn of its own."""

    def waiting(self) -> int:
        return 0

    async def take(self, most: int = 3) -> tuple[Inbound, ...]:
        return ()

    def given(self, id: str) -> Inbound | None:
        return None

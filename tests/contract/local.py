"""The terminal's contract: it writes through the door itself, and reads its replies from the outbox."""

from __future__ import annotations

from tests.contract.case import Incoming, NotHere

RECEIVING: tuple[type[Incoming], ...] = ()
SENDING = NotHere("the terminal follows its session")

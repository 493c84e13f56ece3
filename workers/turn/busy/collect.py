"""Mode `collect`: what one sender said while a turn ran becomes one turn.

Each message is journaled as it comes, so none is lost. The turn of the first waits until nothing more comes for a moment, and
takes along what waits then. Messages of others, and what follows a command, keep their place.
"""

from __future__ import annotations

import asyncio
import time

from shared.busy import BusyMode
from shared.clock import now_ms
from shared.control import parse
from shared.lane import Lease
from shared.messages import Inbound, Kind, Mail, Session
from shared.store.journal import Journal
from workers.turn.busy.behind import LOOK_AT_MOST, companions, look_behind, people_behind, still_waiting
from workers.turn.busy.mode import BusyModes
from workers.turn.question import ASKING

QUIET_SECONDS = 0.5  # nothing more came for so long
AT_MOST_SECONDS = 10.0  # then the turn begins, whatever comes


def collects(modes: BusyModes, session: Session, inbound: Inbound, told: BusyMode | None) -> bool:
    """Whether a message takes along what waits behind it. While a question is open, it may be the answer: it goes alone."""
    if modes.in_session(session, inbound, told) is not BusyMode.COLLECT or ASKING in session.facts:
        return False
    return inbound.kind is Kind.MESSAGE and inbound.terms is None and parse(inbound.text) is None


async def collected(first: Mail, session: Session, lease: Lease, journal: Journal) -> tuple[Mail, ...]:
    """What the sender of the first message said since. A message that found its key at rest waits for nothing."""
    if first.inbound.received_at <= session.updated_at:
        await _until_quiet(first, lease)
    waiting = await look_behind(first, lease, journal)
    found = [one.mail for one in companions((first,), waiting, lambda *_: False)]
    return tuple(found) if first.journaled else await still_waiting(found, journal)


async def _until_quiet(first: Mail, lease: Lease) -> None:
    """Wait until nothing came for a moment. /stop ends the wait."""
    until, count, received_at = time.monotonic() + AT_MOST_SECONDS, 0, first.inbound.received_at
    while time.monotonic() < until and received_at > lease.drop_until_ms:
        waiting = await lease.look(LOOK_AT_MOST)
        newest = max([received_at, *(one.inbound.received_at for one in people_behind((first,), waiting))])
        left = QUIET_SECONDS - (now_ms() - newest) / 1000
        if left <= 0 or len(waiting) == count:  # receivers' clocks may be ahead of ours
            return
        count = len(waiting)
        await asyncio.sleep(min(left, QUIET_SECONDS))

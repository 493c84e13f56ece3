"""Several photos that a user sent as one: platforms deliver them one by one, and they are answered together.

Each is journaled as it comes, so none is lost. The turn of the first waits for a moment and then takes along what has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared.clock import now_ms
from shared.codec import decode_inbound
from shared.errors import Malformed
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.messages import Inbound, Mail, State
from shared.store.database import Row
from shared.store.journal import Journal

WAIT_SECONDS = 1.0  # after the first of them came
AT_MOST = 20  # a platform's albums have ten


async def rest_of_album(lease: Lease, first: Mail, journal: Journal) -> tuple[Mail, ...]:
    """The other photos of the album that `first` begins. Waits where it came only just now.

    The mailbox may still hold a photo that an operator dropped: the journal is asked, because no commit could end it.
    """
    age = (now_ms() - first.inbound.received_at) / 1000
    if age < WAIT_SECONDS:
        await asyncio.sleep(min(WAIT_SECONDS, WAIT_SECONDS - age))
    rest = tuple(_following(await lease.look(AT_MOST), first))
    rows = await asyncio.gather(*(journal.find(mail.inbound.id) for mail in rest))
    return tuple(mail for mail, row in zip(rest, rows, strict=True) if _waits(mail, row))


def _waits(mail: Mail, row: Row | None) -> bool:
    """Mail that only Redis knows is written down when it ends."""
    return row is not None and row["state"] == State.PENDING if mail.journaled else row is None


def _following(waiting: Sequence[Waiting], first: Mail) -> Iterable[Mail]:
    """Those right behind it: what came between two photos is a message of its own, and comes in its order."""
    last = first.seq
    for letter in waiting:
        if letter.seq <= first.seq:
            continue
        try:
            inbound = decode_inbound(letter.payload)
        except Malformed:
            return
        if inbound.album != first.inbound.album or (first.journaled and letter.seq != last + 1):
            return
        last = letter.seq
        yield Mail(letter.seq, inbound, first.journaled, b"" if first.journaled else letter.payload)


def as_one(first: Inbound, rest: Sequence[Mail]) -> Inbound:
    """What was said with all of them, in the first one's name."""
    if not rest:
        return first
    inbounds = [first, *(mail.inbound for mail in rest)]
    text = "\n".join(inbound.text for inbound in inbounds if inbound.text)
    return replace(first, text=text, media=tuple(media for inbound in inbounds for media in inbound.media))

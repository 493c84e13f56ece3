"""Several photos that a user sent as one: platforms deliver them one by one, and they are answered together.

Each is journaled as it comes, so none is lost. The turn of the first waits for a moment and then takes along what has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared.clock import now_ms
from shared.errors import Malformed
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.mail import TakeNotes, decode_mail
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
    """The photos right behind it. A message between two photos ends the album: it is answered in its order. Mail that
    nobody said (notes to take) is passed over."""
    last = first.seq
    for next_one in waiting:
        if next_one.seq <= first.seq:
            continue
        try:
            content = decode_mail(next_one.payload)
        except Malformed:
            return
        if isinstance(content, TakeNotes):
            continue
        if content.album != first.inbound.album or (first.journaled and next_one.seq != last + 1):
            return
        last = next_one.seq
        yield Mail(next_one.seq, content, first.journaled, b"" if first.journaled else next_one.payload)


def as_one(first: Inbound, rest: Sequence[Mail]) -> Inbound:
    """What was said with all of them, in the first one's name."""
    if not rest:
        return first
    inbounds = [first, *(mail.inbound for mail in rest)]
    text = "\n".join(inbound.text for inbound in inbounds if inbound.text)
    return replace(first, text=text, media=tuple(media for inbound in inbounds for media in inbound.media))

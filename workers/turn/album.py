"""Several messages that a user sent as one (shared/pieces.py) are answered together.

Each is journaled as it comes, so none is lost. The turn of the first waits for a moment and then takes along what has come.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared.clock import now_ms
from shared.errors import Malformed
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.mail import TakeNotes, decode_mail
from shared.messages import Inbound, Mail
from shared.pieces import AT_MOST, belong_together, is_cut
from shared.platforms import facts_of
from shared.store.journal import Journal
from workers.turn.busy.behind import still_waiting

WAIT_SECONDS = 1.0  # after the last of them came


async def rest_of_album(lease: Lease, first: Mail, journal: Journal) -> tuple[Mail, ...]:
    """The other photos of the album that `first` begins, or the other pieces of its text. Waits where the last of them came
    only just now.

    The mailbox may still hold a photo that an operator dropped: the journal is asked, because no commit could end it.
    """
    last, rest = first.inbound, tuple[Mail, ...]()
    for _ in range(AT_MOST):
        age = (now_ms() - last.received_at) / 1000
        if age < WAIT_SECONDS:
            await sleep(min(WAIT_SECONDS, WAIT_SECONDS - age))
        rest = tuple(_following(await lease.look(AT_MOST), first))
        newest = rest[-1].inbound if rest else first.inbound
        if newest.id == last.id or not is_cut(newest):
            break
        last = newest
    return await still_waiting(rest, journal)


def _following(waiting: Sequence[Waiting], first: Mail) -> Iterable[Mail]:
    """The photos or pieces right behind it. A message between two of them ends the album: it is answered in its order. Mail
    that nobody said (notes to take) is passed over."""
    last, said = first.seq, first.inbound
    for next_one in waiting:
        if next_one.seq <= first.seq:
            continue
        try:
            content = decode_mail(next_one.payload)
        except Malformed:
            return
        if isinstance(content, TakeNotes):
            continue
        if not belong_together(said, content) or (first.journaled and next_one.seq != last + 1):
            return
        last, said = next_one.seq, content
        yield Mail(next_one.seq, content, first.journaled, b"" if first.journaled else next_one.payload)


def as_one(first: Inbound, rest: Sequence[Mail], between: str | None = None) -> Inbound:
    """What was said with all of them, in the first one's name. `between` stands between their texts, if it is given; else
    what the platform took away where it was one text."""
    if not rest:
        return first
    inbounds = [first, *(mail.inbound for mail in rest)]
    pieces = [(inbound.text, _joint(inbound) if between is None else between) for inbound in inbounds if inbound.text]
    text = "".join(f"{said}{joint}" for said, joint in pieces)
    media = tuple(media for inbound in inbounds for media in inbound.media)
    return replace(first, text=text.removesuffix(pieces[-1][1]) if pieces else "", media=media)


def _joint(said: Inbound) -> str:
    """A full message was cut in the middle of a word. Others end at a line or a word, whose end the platform took away."""
    limit = facts_of(said.source.platform).text_limit
    return "" if is_cut(said) and limit is not None and limit.measure(said.text) >= limit.units else "\n"

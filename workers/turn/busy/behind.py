"""The messages that wait behind the one whose turn runs, and which of them may act on that turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from shared.busy import NEW, STEER, begins_anew, same_speaker, steering_words
from shared.control import parse
from shared.errors import Malformed
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.mail import TakeNotes, decode_mail
from shared.messages import Inbound, Kind, Mail, State
from shared.store.database import Row
from shared.store.journal import Journal
from shared.value import value
from workers.turn.question import expired_ask

LOOK_AT_MOST = 100  # messages behind the running one; those further back are seen when these have gone
MayGive = Callable[[Inbound, str], bool]  # whether the sender of a message may give a command


@value
class Companion:
    """A message of the sender whose turn runs, said in the same place."""

    mail: Mail
    said: Inbound  # as the agent is to read it
    is_steer: bool  # said with /steer: it is for the running turn, whatever the mode


def companions(running: Sequence[Mail], waiting: Iterable[Waiting], may_give: MayGive) -> Iterator[Companion]:
    """What the sender of the running messages said since, in order. Messages of others are passed over, as is what nobody
    said. A command ends the list, as does what cannot be read: what was said after it must not overtake it."""
    for mail in people_behind(running, waiting):
        inbound = mail.inbound
        words = steering_words(inbound.text)
        if words is not None and not may_give(inbound, STEER):
            return
        if words is None and (parse(inbound.text) is not None or inbound.terms is not None):
            return
        if same_speaker(running[0].inbound, inbound) and (inbound.text.strip() or inbound.media):
            yield Companion(mail, inbound if words is None else replace(inbound, text=words), words is not None)


def people_behind(running: Sequence[Mail], waiting: Iterable[Waiting]) -> Iterator[Mail]:
    """The messages of people behind the first of those that the running turn answers, in order, up to the first that cannot be
    read. The others that it answers wait for nothing, though they are in the mailbox until it has ended."""
    first, answered = running[0], {mail.seq for mail in running}
    for one in waiting:
        if one.seq <= first.seq or one.seq in answered:
            continue
        try:
            content = decode_mail(one.payload)
        except Malformed:
            return
        if isinstance(content, TakeNotes) or content.kind is not Kind.MESSAGE or expired_ask(content) is not None:
            continue
        yield Mail(one.seq, content, first.journaled, b"" if first.journaled else one.payload)


def new_conversation(running: Sequence[Mail], waiting: Iterable[Waiting], may_give: MayGive) -> Mail | None:
    """The first `/new` behind the running messages, of anybody who may give it: it ends the conversation for all."""
    for mail in people_behind(running, waiting):
        if begins_anew(mail.inbound.text) and may_give(mail.inbound, NEW):
            return mail
    return None


async def look_behind(running: Mail, lease: Lease, journal: Journal) -> Sequence[Waiting]:
    """What waits behind the running message, by the journal's count where it counts, so that none overtakes another. The
    mailbox may still hold a message that has ended, or lack one."""
    if running.journaled:
        rows = await journal.pending(lease.key, after=running.seq, limit=LOOK_AT_MOST)
        return [Waiting(row.seq, row.payload.encode()) for row in rows]
    return await lease.look(LOOK_AT_MOST)


async def still_waiting(mail: Sequence[Mail], journal: Journal) -> tuple[Mail, ...]:
    """Those that have not ended: no commit could end the others."""
    rows = await asyncio.gather(*(journal.find(one.inbound.id) for one in mail))
    return tuple(one for one, row in zip(mail, rows, strict=True) if _waits(one, row))


def _waits(mail: Mail, row: Row | None) -> bool:
    """Mail that only Redis knows is written down when it ends."""
    return row is not None and row["state"] == State.PENDING if mail.journaled else row is None

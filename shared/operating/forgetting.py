"""Forget a person: all that they said, what was answered and noted, what they have scheduled and spent, their files.

What stays of them is an id per message that nobody can read, so that a redelivered message is still known. In conversations
that several share their words are replaced, and quotes of them are removed; what others, or the agent, said there of them stays. The audit log keeps what operators
did, and no longer says to whose conversation.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby

from shared.clock import now_ms
from shared.embedded.append_only import write_anew
from shared.errors import NotFound, Unavailable
from shared.operating.messages import NotPending, drop_message
from shared.pauses import enforce_pauses
from shared.person import Person
from shared.pipeline import Pipeline
from shared.store.people import PersonRecords
from shared.store.remains import Remains, remains
from shared.value import value

TRIES = 10  # against turns of the same conversations, which move them on


@value
class ForgottenPerson:
    """What was removed, and what still names the person: nothing, or tables with so many rows."""

    sessions: int
    shared_rows: int
    messages: int
    notes: int
    schedules: int
    pauses: int
    files: int
    left: tuple[Remains, ...]


@value
class ForgetProgress:
    """How far the forgetting of a person has come: what is done now, and how much of it."""

    doing: str
    done: int
    total: int


Tell = Callable[[ForgetProgress], None]


def tell_nobody(_: ForgetProgress) -> None:
    """For those who only want the result."""


async def forget_person(pipe: Pipeline, person: Person, tell: Tell = tell_nobody) -> ForgottenPerson:
    """Remove everything that is kept of a person, under both ids where the platform gave them two, then look through every
    table for the ids.

    NotFound where there is nothing. After a crash, doing it again finishes it. Somebody who goes on writing meanwhile is met
    again: take their right to talk away first.
    """
    # The id that was given comes last: after a crash, the rest is still found by it.
    ids, noted = [*await pipe.store.people.other_ids(person), person.id], set[str]()
    forgotten = [await _forget_id(pipe, Person(person.platform, id), noted, tell) for id in ids]
    files = await _remove_files(pipe, noted)

    def looked(done: int, total: int) -> None:
        tell(ForgetProgress("looking through all tables for what still names them", done, total))

    await write_anew(pipe)
    left = {one: None for id in ids for one in await remains(pipe.store.database, id, looked)}
    if not any(forgotten) and not left and not files:
        raise NotFound(f"nothing is kept of {person.platform}:{person.id}")
    counts = zip(*(one or _NONE for one in forgotten), strict=True)
    sessions, shared_rows, messages, notes, schedules, pauses = (sum(numbers) for numbers in counts)
    return ForgottenPerson(sessions, shared_rows, messages, notes, schedules, pauses, files, tuple(left))


_NOTHING = PersonRecords(*((),) * 23)
_NONE = (0,) * 6


async def _forget_id(pipe: Pipeline, person: Person, noted: set[str], tell: Tell) -> tuple[int, ...] | None:
    """What was removed, in the order of ForgottenPerson's fields; None: nothing is kept under this id. Adds to `noted` the files
    that are to be removed then."""
    store, first = pipe.store, await pipe.store.people.records(person)
    if first == _NOTHING:
        return None
    found = first
    for _ in range(TRIES):
        # Quotes before their words: what they said and were called tells older quotes of them.
        if found.quotes or found.quoting or found.quoting_letters:
            await store.people.unquote(found)
            found = await store.people.records(person)
            continue
        await store.people.note_files(found.blobs, now_ms())  # by sessions and rows nobody finds them any more
        noted |= set(found.blobs)
        await _end_waiting(pipe, found, tell)
        # Outputs before schedules, and both before sessions: by those the rest is found again after a crash.
        await asyncio.to_thread(_remove_outputs, pipe, found)
        await store.people.forget(person, found)
        whole = await _without_words(pipe, found, tell)
        if found.pauses:  # when nothing waits behind them any more
            await enforce_pauses(pipe)
        found = await store.people.records(person)
        open_work = (found.waiting, found.ended, found.letters, found.tasks, found.asks)
        quoted = (found.quotes, found.quoting, found.quoting_letters)
        left = (found.sessions, found.shared_rows, *quoted, *open_work, found.facts, found.pauses, found.audit)
        if whole and not any(left):  # a message that has just been dropped has ended only now
            break
    else:
        raise Unavailable("the person's conversations go on all the time: stop them, then try again")
    await asyncio.to_thread(_remove_outputs, pipe, first)  # what a run wrote meanwhile
    messages = (*first.ended, *first.waiting)
    counted = (first.sessions, first.shared_rows, messages, first.notes, first.schedules, first.pauses)
    return tuple(map(len, counted))


async def _end_waiting(pipe: Pipeline, found: PersonRecords, tell: Tell) -> None:
    for done, id in enumerate(found.waiting):
        tell(ForgetProgress("ending their messages that wait", done, len(found.waiting)))
        try:
            dropped = await drop_message(pipe, id, tell=False)
        except NotPending:  # a worker was faster
            continue
        if dropped.note:  # their words are still in Redis; and numbers that it knows must not be given again
            raise Unavailable(f"a message of theirs is still in Redis: {dropped.note}. Try again then")


async def _without_words(pipe: Pipeline, found: PersonRecords, tell: Tell) -> bool:
    """Delete the person's sessions, and replace their words elsewhere. False: a turn was in the way of some."""
    whole = True
    for done, row in enumerate(found.sessions):
        tell(ForgetProgress("deleting their conversations", done, len(found.sessions)))
        whole &= await pipe.store.delete(row["id"], row["version"])
    for _, rows in groupby(found.shared_rows, key=lambda row: str(row["session_id"])):
        whole &= await pipe.store.people.blank([*rows])
    return whole


async def _remove_files(pipe: Pipeline, own: set[str]) -> int:
    """Files that were noted, by this or an earlier try, and to which nothing refers any more, go at once, not after
    MEDIA__ORPHAN_HOURS. A file whose bytes somebody brought again since it was noted stays: their turn is about to refer to it. If it
    does not, a housekeeper removes the file."""
    people, removed = pipe.store.people, 0
    noted = await people.noted_files()
    gone = await pipe.store.blob_references.unreferred(sorted(noted))
    try:
        for digest in gone:
            removed += await pipe.blobs.remove(digest, timedelta(milliseconds=max(0, now_ms() - noted[digest])))
    except Unavailable as error:
        later = "everything else is gone; forget again, or a housekeeper removes their files when MEDIA__ORPHAN_HOURS have passed"
        raise Unavailable(f"{error}: {later}") from None
    await people.forget_noted_files({*gone, *own})
    return removed


def _remove_outputs(pipe: Pipeline, found: PersonRecords) -> None:
    for schedule in found.schedules:
        shutil.rmtree(pipe.settings.data_dir / "cron" / "output" / str(schedule["id"]), ignore_errors=True)

"""Forget a person: all that they said, what was answered and noted, what they have scheduled and spent, their files.

What stays of them is an id per message that nobody can read, so that a redelivered message is still known. In conversations
that several share their words are replaced; what others, or the agent, said there of them stays.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from itertools import groupby

from shared.errors import NotFound, Unavailable
from shared.operating.messages import NotPending, drop_message
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
    files: int
    left: tuple[Remains, ...]


async def forget_person(pipe: Pipeline, person: Person) -> ForgottenPerson:
    """Remove everything that is kept of a person, then look through every table for their id.

    NotFound where there is nothing. After a crash, doing it again finishes it. Somebody who goes on writing meanwhile is met
    again: take their right to talk away first.
    """
    store, first = pipe.store, await pipe.store.people.records(person)
    if first == _NOTHING:
        raise NotFound(f"nothing is kept of {person.platform}:{person.id}")
    files, found = set(first.blobs), first
    for _ in range(TRIES):
        await _end_waiting(pipe, found)
        await store.people.forget(
            person, found
        )  # before their sessions: by those the rest is found again after a crash
        whole = await _without_words(pipe, found)
        found = await store.people.records(person)
        files |= set(found.blobs)
        if whole and not (found.sessions or found.shared_rows or found.waiting):
            break
    else:
        raise Unavailable("the person's conversations go on all the time: stop them, then try again")
    await asyncio.to_thread(_remove_outputs, pipe, first)
    return ForgottenPerson(
        sessions=len(first.sessions),
        shared_rows=len(first.shared_rows),
        messages=len(first.ended) + len(first.waiting),
        notes=len(first.notes),
        schedules=len(first.schedules),
        files=await _remove_files(pipe, sorted(files)),
        left=tuple(await remains(store.database, person.id)),
    )


_NOTHING = PersonRecords((), (), (), (), (), (), (), (), (), (), (), (), ())


async def _end_waiting(pipe: Pipeline, found: PersonRecords) -> None:
    for id in found.waiting:
        try:
            await drop_message(pipe, id, tell=False)
        except NotPending:  # a worker was faster
            continue


async def _without_words(pipe: Pipeline, found: PersonRecords) -> bool:
    """Delete the person's sessions, and replace their words elsewhere. False: a turn was in the way of some."""
    whole = True
    for row in found.sessions:
        whole &= await pipe.store.delete(row["id"], row["version"])
    for _, rows in groupby(found.shared_rows, key=lambda row: str(row["session_id"])):
        whole &= await pipe.store.people.blank([*rows])
    return whole


async def _remove_files(pipe: Pipeline, digests: list[str]) -> int:
    """Files to which nothing refers any more go at once, not after MEDIA__ORPHAN_HOURS."""
    gone = await pipe.store.blob_references.unreferred(digests)
    return sum([await pipe.blobs.remove(digest, timedelta(0)) for digest in gone])


def _remove_outputs(pipe: Pipeline, found: PersonRecords) -> None:
    for schedule in found.schedules:
        shutil.rmtree(pipe.settings.data_dir / "cron" / "output" / str(schedule["id"]), ignore_errors=True)

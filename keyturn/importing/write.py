"""Bringing conversations in. Each is one transaction that is signed and compared like a turn's commit: all of it, or none.

What is here already is not written again. A session that went on in Keyturn is left as it is, and so is a key that talks
to another conversation by now. What an older gateway added since the last import is added, as long as nobody else did.
A very long conversation comes in several transactions and is its key's with the last: a run that was stopped in between
is continued by the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice

from keyturn.importing.conversation import SIGNATURE, GatewayReader, OldConversation, Skipped, Used, session_id
from keyturn.importing.conversation import TimedRow as MovedRow
from keyturn.importing.memory import OldPeople, bring_memory
from keyturn.importing.report import Outcome, Report
from keyturn.importing.usage import bring_usage, spent_row
from shared.clock import now_ms
from shared.codec import encode_text
from shared.errors import AlreadyDone
from shared.owner import owner_of
from shared.store.database import Database, Row, Step
from shared.store.imports import SignedImport, sql
from shared.store.usage import Counted

BATCH = 64  # conversations in memory
AT_ONCE = 8  # of them are written side by side: SQLite syncs them together, PostgreSQL has a connection for each
AT_A_TIME = (
    5000  # rows of a transaction: PostgreSQL takes some seconds for so many, and no call may take longer than 30
)
ELSEWHERE = "its key talks to another conversation here"


async def move_in(
    reader: GatewayReader,
    database: Database,
    *,
    dry_run: bool = False,
    memory_of: Sequence[str] = (),
    advance: Callable[[int], None] = lambda done: None,
) -> Report:
    """Bring all of it in. Safe to stop and to run again; `advance` hears how far it has come.

    `memory_of` are the owners of the notes in the gateway's memory files; without any, they follow from who wrote there.
    """
    report, turnstile = Report(dry_run), asyncio.Semaphore(AT_ONCE)

    async def settle(one: OldConversation, standing: Row | None) -> None:
        async with turnstile:
            await _settle(one, standing, database, report)

    people = OldPeople()
    for batch in _batches(iter(reader)):
        conversations = [one for one in batch if isinstance(one, OldConversation)]
        for one in batch:
            if isinstance(one, Skipped):
                report.skip(one)
        people.meet(conversations)
        standings = await database.read(*(sql.import_standing(session_id=one.session_id) for one in conversations))
        await asyncio.gather(
            *(settle(one, rows[0] if rows else None) for one, rows in zip(conversations, standings, strict=True))
        )
        advance(report.found)
    await bring_usage(reader, database, report)
    await bring_memory(reader, people, memory_of, database, report)
    return report


async def _settle(one: OldConversation, standing: Row | None, database: Database, report: Report) -> None:
    outcome, before = _outcome(one, standing)
    rows, note = 0, one.note or (one.place.note if one.is_current else None)
    if outcome in (Outcome.IMPORTED, Outcome.GROWN):
        rows = len(one.rows) - before
        if not report.dry_run:
            outcome, routed = await _write(one, standing, before, outcome, database)
            rows = rows if outcome in (Outcome.IMPORTED, Outcome.GROWN) else 0
            note = note if routed else ELSEWHERE
    report.settle(one, outcome, rows, note)


def _outcome(one: OldConversation, standing: Row | None) -> tuple[Outcome, int]:
    """What is to be done, and how many of its rows are here."""
    if standing is None:
        return Outcome.IMPORTED, 0
    before, signed = standing["message_count"], standing["turn_id"]
    if not signed.startswith(SIGNATURE):
        return Outcome.MOVED_ON, before
    if before <= len(one.rows) and signed == one.turn_id(before):
        return (Outcome.GROWN if before < len(one.rows) else Outcome.UNCHANGED), before
    return Outcome.DIFFERS, before


async def _write(
    one: OldConversation, standing: Row | None, before: int, planned: Outcome, database: Database
) -> tuple[Outcome, bool]:
    """What came of it, and whether its key talks to it."""
    version = standing["version"] if standing is not None else 0
    while True:
        end = min(before + AT_A_TIME, len(one.rows))
        try:
            results = await database.write(*_steps(one, version, before, end))
        except AlreadyDone:  # another import did the very same just now
            return Outcome.UNCHANGED, True
        if not results[0]:
            return Outcome.MOVED_ON, True
        if end == len(one.rows):
            return planned, not one.is_current or bool(results[1])
        before, version = end, version + 1


def _steps(one: OldConversation, version: int, before: int, end: int) -> Sequence[Step]:
    """The rows up to `end`; with the last of them, what tells others of the session."""
    signed: SignedImport = {"session_id": one.session_id, "turn_id": one.turn_id(end)}
    if version:
        grown = sql.import_growth(
            version=version, added=end - before, title=one.title, updated_at=one.updated_at, **signed
        )
        steps = [grown]
        hidden = [sql.import_inactive(from_n=a, to_n=b, **signed) for a, b in _inactive_runs(one.rows[:before])]
    else:
        begun = sql.import_session(
            session_key=str(one.key),
            added=end - before,
            created_at=one.created_at,
            updated_at=one.updated_at,
            title=one.title,
            parent_id=session_id(one.gateway, one.parent) if one.parent else None,
            ended_at=one.ended_at,
            end_reason=one.end_reason,
            owner=owner_of(one.key, one.source),
            **signed,
        )
        steps, hidden = [begun], []
    if end == len(one.rows):
        if one.is_current:
            steps.append(sql.import_route(session_key=str(one.key), created_at=one.created_at, **signed))
        steps += (sql.import_fact(fact=name, value=value, **signed) for name, value in one.facts.items())
        steps += (_spent(used, one, signed) for used in one.used)
        if one.is_flushed:
            steps.append(sql.import_flushed(upto=end, **signed))
    steps += hidden
    steps += (_message(n, row, signed) for n, row in enumerate(one.rows[before:end], before + 1))
    steps.append(sql.import_turn(now=now_ms(), **signed))
    return steps


def _message(n: int, row: MovedRow, signed: SignedImport) -> Step:
    entry = row.entry
    return sql.import_message(
        n=n,
        role=entry.role,
        text=entry.text,
        data=encode_text(entry.data),
        active=int(row.active),
        created_at=row.at,
        **signed,
    )


def _spent(used: Used, one: OldConversation, signed: SignedImport) -> Step:
    counted: Counted = spent_row(used, owner=owner_of(one.key, one.source) or "", agent=one.key.agent)
    return sql.import_usage(now=one.updated_at, **counted, **signed)


def _inactive_runs(rows: Sequence[MovedRow]) -> Iterator[tuple[int, int]]:
    """The first and the last number of each stretch of rows that are not shown."""
    n = 0
    for active, run in groupby(row.active for row in rows):
        length = sum(1 for _ in run)
        if not active:
            yield n + 1, n + length
        n += length


def _batches(found: Iterator[OldConversation | Skipped]) -> Iterator[list[OldConversation | Skipped]]:
    while batch := list(islice(found, BATCH)):
        yield batch

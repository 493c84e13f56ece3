"""Bringing conversations in. Each is one transaction that is signed and compared like a turn's commit: all of it, or none.

What is here already is not written again. A session that went on in Keyturn is left as it is, and so is a key that talks
to another conversation by now. What an older gateway added since the last import is added, as long as nobody else did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from shared.clock import now_ms
from shared.codec import encode_text
from shared.errors import AlreadyDone
from shared.moving.conversation import SIGNATURE, Conversation, Reader, Skipped, session_id
from shared.moving.report import Outcome, Report
from shared.store.database import Database, Row, Step, step

AT_ONCE = 64  # conversations in memory; SQLite syncs them together, PostgreSQL's pool takes them side by side
ELSEWHERE = "its key talks to another conversation here"


async def move_in(
    reader: Reader, database: Database, *, dry_run: bool = False, advance: Callable[[int], None] = lambda done: None
) -> Report:
    """Bring all of it in. Safe to stop and to run again; `advance` hears how far it has come."""
    report = Report(dry_run)
    for batch in _batches(iter(reader)):
        conversations = [one for one in batch if isinstance(one, Conversation)]
        for one in batch:
            if isinstance(one, Skipped):
                report.skip(one)
        standings = await database.read(*(step("import_standing", session_id=one.session_id) for one in conversations))
        await asyncio.gather(
            *(
                _settle(one, rows[0] if rows else None, database, report)
                for one, rows in zip(conversations, standings, strict=True)
            )
        )
        advance(report.found)
    return report


async def _settle(one: Conversation, standing: Row | None, database: Database, report: Report) -> None:
    outcome, before = _outcome(one, standing)
    rows, note = 0, one.note
    if outcome in (Outcome.IMPORTED, Outcome.GROWN):
        rows = len(one.rows) - before
        if not report.dry_run:
            outcome, routed = await _write(one, standing, before, outcome, database)
            rows = rows if outcome in (Outcome.IMPORTED, Outcome.GROWN) else 0
            note = note if routed else ELSEWHERE
    report.settle(one, outcome, rows, note)


def _outcome(one: Conversation, standing: Row | None) -> tuple[Outcome, int]:
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
    one: Conversation, standing: Row | None, before: int, planned: Outcome, database: Database
) -> tuple[Outcome, bool]:
    steps = _steps(one, standing, before)
    try:
        results = await database.write(*steps)
    except AlreadyDone:  # another import did the very same just now
        return Outcome.UNCHANGED, True
    if not results[0]:
        return Outcome.MOVED_ON, True
    return planned, bool(results[1]) if one.is_current and standing is None else True


def _steps(one: Conversation, standing: Row | None, before: int) -> Sequence[Step]:
    turn_id = one.turn_id(len(one.rows))
    signed = {"session_id": one.session_id, "turn_id": turn_id}
    about = {"added": len(one.rows) - before, "title": one.title, "updated_at": one.updated_at}
    if standing is not None:
        steps = [step("import_growth", version=standing["version"], **about, **signed)]
    else:
        place = {"session_key": str(one.key), "created_at": one.created_at}
        past = {"parent_id": session_id(one.gateway, one.parent) if one.parent else None}
        end = {"ended_at": one.ended_at, "end_reason": one.end_reason}
        steps = [step("import_session", **about, **place, **past, **end, **signed)]
        if one.is_current:
            steps.append(step("import_route", **place, **signed))
    for n, row in enumerate(one.rows[before:], before + 1):
        said = {"role": row.entry.role, "text": row.entry.text, "data": encode_text(row.entry.data)}
        steps.append(step("import_message", n=n, active=int(row.active), created_at=row.at, **said, **signed))
    steps += (step("import_fact", fact=name, value=value, **signed) for name, value in one.facts.items())
    steps.append(step("import_turn", now=now_ms(), **signed))
    return steps


def _batches(found: Iterator[Conversation | Skipped]) -> Iterator[list[Conversation | Skipped]]:
    while batch := list(islice(found, AT_ONCE)):
        yield batch

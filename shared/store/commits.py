"""The commit of a turn: the guarantee. Tables: sessions, routes, inbox, messages, turns, outbox; for some also usage,
dead, facts, flushes, notes and blob_references.

A commit compares and sets the session's version. Every other row of it is written only if that succeeded, in the same
transaction. So after a crash a turn is there whole or not at all, and of two writers that loaded the same version one wins:
the other gets Superseded and has written nothing. Commits are written in batches (shared/store/batch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypedDict, Unpack

from shared import log
from shared.clock import now_ms
from shared.codec import storable
from shared.context.legal import keepable
from shared.mail import encode_mail
from shared.messages import Inbound, Session, State
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.store.batch import CommitBatches, CommitRows
from shared.store.blob_references import references
from shared.store.change import NO_CHANGE, Also, Commit, Committed, Stamp
from shared.store.commit_rows import (
    ended_rows,
    json_objects,
    message_rows,
    outbox_rows,
    turn_row,
    unjournaled_rows,
    usage_rows,
)
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.parts import parts_of
from shared.store.windows import Windows


class DeadInbound(TypedDict):
    """The dead letter of inbound `id`."""

    id: str
    session_key: str
    reason: str
    detail: str
    payload: str
    attempts: int
    now: int
    session_id: str
    turn_id: str


class CommitsSql(Protocol):
    """The statements of commits.sql: what few turns need, one call per row."""

    def commit_dead(self, **letter: Unpack[DeadInbound]) -> Step: ...
    def commit_next_session(
        self, *, next_session_id: str, session_key: str, owner: str | None, session_id: str, turn_id: str, now: int
    ) -> Step: ...
    def commit_flush(self, *, session_id: str, session_key: str, turn_id: str, row_count: int, now: int) -> Step: ...
    def commit_inactive(self, *, session_id: str, turn_id: str, from_n: int, to_n: int) -> Step: ...
    def commit_fact(self, *, scope: str, name: str, value: str, session_id: str, turn_id: str) -> Step: ...
    def commit_no_fact(self, *, scope: str, name: str, session_id: str, turn_id: str) -> Step: ...


sql = declared(CommitsSql)


class Commits:
    """The only way to end mail with a turn and to move a session on."""

    def __init__(self, database: Database, windows: Windows) -> None:
        self._batches = CommitBatches(database)
        self._windows = windows

    async def commit(self, commit: Commit) -> Committed:
        """End the mail, add the rows and the replies: all of it, or Superseded and none. AlreadyDone: an inbound that only
        Redis knew has ended before. Locked: somebody keeps a row of it locked, and nothing was written.

        Tool results without a call are left out: no model could be shown them.
        """
        session, change, proof = commit.session, commit.change, commit.proof
        entries = keepable(commit.entries)
        if left_out := len(commit.entries) - len(entries):
            log.get().warning("tool results without a call left out", key=commit.session_key, rows=left_out)
        stamp = Stamp(session.id, proof.turn_id, commit.session_key, now_ms())
        owner = session.owner
        if owner is None or change.next_session_id is not None:  # a session begins, or is older than owners
            owner = _owner(commit) or owner
        turn = turn_row(commit, stamp, added=len(entries), owner=owner)
        destination, parts = parts_of(
            commit.mail, commit.replies, turn_id=stamp.turn_id, session_key=stamp.session_key, now=stamp.now
        )
        rows = CommitRows(
            stamp.session_key,
            stamp.turn_id,
            opens_session=session.version == 0,
            turns=json_objects((turn,)),
            ended=json_objects(ended_rows(commit, stamp)),
            unjournaled=json_objects(unjournaled_rows(commit, stamp)),
            messages=json_objects(message_rows(entries, session.message_count, stamp)),
            outbox=json_objects(outbox_rows(parts, stamp)) if parts else b"",
            usage=json_objects(usage_rows(commit, stamp)) if change.usage else b"",
            also=(*_also(commit, stamp, len(entries), owner), *references(entries, commit.replies, stamp)),
        )
        outbox = await self._batches.write(rows)
        moved = Session(
            session.id,
            session.version + 1,
            session.message_count + len(entries),
            max(session.done_seq, turn["done_seq"]),
            session.history.and_then(entries),
            stamp.now,
            session.facts,
            owner,
        )
        # No turn reads the title, and none reads what was spent from the session.
        changed = change is not NO_CHANGE and replace(change, title=None, usage=()) != NO_CHANGE
        changed = changed or not session.is_loaded
        if not changed:
            self._windows.keep(stamp.session_key, stamp.turn_id, moved.history)
        elsewhere = {id: to for id, row in zip(outbox, parts, strict=True) if (to := row["destination"]) != destination}
        return Committed(moved, destination, outbox, changed, elsewhere)


def deactivate(from_n: int, to_n: int) -> Also:
    """Take rows of the session out of the conversation. They stay on disk."""
    return lambda stamp: sql.commit_inactive(
        session_id=stamp.session_id, turn_id=stamp.turn_id, from_n=from_n, to_n=to_n
    )


def _owner(commit: Commit) -> str | None:
    """The owner of a session that begins with this mail."""
    if not commit.mail:
        return None
    inbound = commit.mail[-1].inbound
    return inbound.owner or owner_of(SessionKey.parse(commit.session_key), inbound.source)


def _also(commit: Commit, stamp: Stamp, added: int, owner: str | None) -> Sequence[Step]:
    """What only some commits write."""
    change, ending = commit.change, commit.ending
    if change is NO_CHANGE and ending.state is not State.DEAD:
        return ()
    steps: list[Step] = []
    if ending.state is State.DEAD:
        steps += (_dead(mail.inbound, commit, stamp) for mail in commit.mail)
    session_id, turn_id = stamp.session_id, stamp.turn_id
    if change.next_session_id is not None:
        steps.append(
            sql.commit_next_session(
                next_session_id=change.next_session_id,
                session_key=stamp.session_key,
                owner=owner,
                session_id=session_id,
                turn_id=turn_id,
                now=stamp.now,
            )
        )
    if change.next_session_id is not None or change.end_reason is not None:  # it ends: /new, a reset, /resume
        steps.append(
            sql.commit_flush(
                session_id=session_id,
                session_key=stamp.session_key,
                turn_id=turn_id,
                row_count=commit.session.message_count + added,
                now=stamp.now,
            )
        )
    if change.inactive_from is not None:
        steps.append(deactivate(change.inactive_from, commit.session.message_count)(stamp))
    for (scope, name), value in _facts(commit).items():
        steps.append(
            sql.commit_no_fact(scope=scope, name=name, session_id=session_id, turn_id=turn_id)
            if value is None
            else sql.commit_fact(scope=scope, name=name, value=storable(value), session_id=session_id, turn_id=turn_id)
        )
    steps += (also(stamp) for also in change.also)
    return steps


def _facts(commit: Commit) -> dict[tuple[str, str], str | None]:
    """The facts that change: those of the change itself, and that the key no longer talks to a session which it leaves."""
    session, change, facts = commit.session, commit.change, dict(commit.change.facts)
    talks_to = change.next_session_id or change.switch_to or session.id
    if talks_to != session.id and (joined := f"joined:{commit.session_key}") in session.facts:
        facts[session.id, joined] = None
    return facts


def _dead(inbound: Inbound, commit: Commit, stamp: Stamp) -> Step:
    return sql.commit_dead(
        id=inbound.id,
        session_key=stamp.session_key,
        reason=commit.ending.reason or "failed",
        detail=storable(commit.ending.detail),
        payload=encode_mail(inbound).decode(),
        attempts=commit.proof.attempts,
        now=stamp.now,
        session_id=stamp.session_id,
        turn_id=stamp.turn_id,
    )

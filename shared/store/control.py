"""Ending control messages, each by itself: tables inbox, routes, outbox, dead, facts. No session belongs to them.

The message's own row is compared and set from pending, and the answer is added in the same transaction. So after a crash
there are both or neither, and of two workers that answer the same message one wins: the other gets AlreadyDone and has
written nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypedDict, Unpack

from shared.clock import now_ms
from shared.codec import storable
from shared.errors import AlreadyDone
from shared.ids import fresh_id
from shared.mail import encode_mail
from shared.messages import Mail, Reply, State
from shared.store.change import ANSWERED, Ending
from shared.store.commit_rows import json_objects
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.parts import parts_of
from shared.value import value


class ControlEnding(TypedDict):
    """How message `id` ends. `turn_id` signs this one call: a repeated call signs with another."""

    id: str
    session_key: str
    state: str
    reason: str | None
    attempts: int
    turn_id: str
    now: int


class UnjournaledControlEnding(ControlEnding):
    """The same for a message that only Redis knew."""

    event_id: str
    platform: str
    seq: int
    payload: str
    received_at: int


class DeadControl(TypedDict):
    """The dead letter of control message `id`, if the call that `turn_id` signs ended it."""

    id: str
    turn_id: str
    session_key: str
    reason: str
    detail: str
    payload: str
    attempts: int
    now: int


class ControlSql(Protocol):
    """The statements of control.sql."""

    def end_control(self, **row: Unpack[ControlEnding]) -> Step: ...
    def end_unjournaled_control(self, **row: Unpack[UnjournaledControlEnding]) -> Step: ...
    def control_route(self, *, id: str, turn_id: str, session_key: str, seq: int) -> Step: ...
    def control_dead(self, **letter: Unpack[DeadControl]) -> Step: ...
    def control_fact(self, *, id: str, turn_id: str, scope: str, name: str, value: str) -> Step: ...
    def control_no_fact(self, *, id: str, turn_id: str, scope: str, name: str) -> Step: ...
    def control_outbox(self, *, id: str, turn_id: str, outbox: str) -> Step: ...


sql = declared(ControlSql)


@value
class ControlCommit:
    """All that one transaction writes to end a control message: everything is kept, or nothing."""

    session_key: str  # the control key
    mail: Mail
    attempts: int
    replies: Sequence[Reply] = ()  # parts for the outbox
    ending: Ending = ANSWERED
    facts: Mapping[tuple[str, str], str | None] = field(default_factory=dict)  # (scope, name) -> value; None forgets


@value
class ControlCommitted:
    """A control message that has ended, with the outbox rows to publish."""

    destination: str
    outbox: tuple[int, ...]

    @property
    def by_destination(self) -> Mapping[str, Sequence[int]]:
        return {self.destination: self.outbox}


class ControlCommits:
    """The only way to end control mail that is first in line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def commit(self, commit: ControlCommit) -> ControlCommitted:
        """End the message and add its answer: both, or AlreadyDone and neither, because it had ended before."""
        mail, key, turn_id, now = commit.mail, commit.session_key, f"control_{fresh_id()}", now_ms()
        id = mail.inbound.id
        destination, parts = parts_of((mail,), commit.replies, turn_id=turn_id, session_key=key, now=now)
        steps = [_end(commit, turn_id, now)]
        if mail.journaled:
            steps.append(sql.control_route(id=id, turn_id=turn_id, session_key=key, seq=mail.seq))
        if commit.ending.state is State.DEAD:
            steps.append(_dead(commit, turn_id, now))
        for (scope, name), known in commit.facts.items():
            steps.append(
                sql.control_no_fact(id=id, turn_id=turn_id, scope=scope, name=name)
                if known is None
                else sql.control_fact(id=id, turn_id=turn_id, scope=scope, name=name, value=storable(known))
            )
        outbox = f"[{json_objects(parts).decode()}]"
        steps.append(sql.control_outbox(id=id, turn_id=turn_id, outbox=outbox))
        ended, *_, added = await self._database.write(*steps)
        if not ended:
            raise AlreadyDone(id)
        return ControlCommitted(destination, tuple(sorted(row["id"] for row in added)))


def _end(commit: ControlCommit, turn_id: str, now: int) -> Step:
    mail, inbound = commit.mail, commit.mail.inbound
    row: ControlEnding = {
        "id": inbound.id,
        "session_key": commit.session_key,
        "state": commit.ending.state.value,
        "reason": commit.ending.reason,
        "attempts": commit.attempts,
        "turn_id": turn_id,
        "now": now,
    }
    if mail.journaled:
        return sql.end_control(**row)
    return sql.end_unjournaled_control(
        **row,
        event_id=inbound.event_id,
        platform=inbound.source.platform,
        seq=mail.seq,
        payload=(mail.payload or encode_mail(inbound)).decode(),
        received_at=inbound.received_at,
    )


def _dead(commit: ControlCommit, turn_id: str, now: int) -> Step:
    return sql.control_dead(
        id=commit.mail.inbound.id,
        turn_id=turn_id,
        session_key=commit.session_key,
        reason=commit.ending.reason or "failed",
        detail=storable(commit.ending.detail),
        payload=encode_mail(commit.mail.inbound).decode(),
        attempts=commit.attempts,
        now=now,
    )

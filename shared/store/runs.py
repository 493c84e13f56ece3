"""Runs and their steps: tables runs and steps. What a turn that calls tools has done so far, until its commit.

Every step is written in one transaction with the fence `hold_run`: the run is held by the caller's lease, and the session is
at the version that the caller's turn loaded. So a worker that lost its key is refused before its next effect, and a worker
that takes a run up sees all that the one before it had begun. After a crash each step is there or not; a call that is there
as begun may have had its effect. The commit of the turn deletes its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import orjson

from shared.agent.steps import Effect, How, Stepped
from shared.clock import now_ms
from shared.codec import encode_text, storable
from shared.context.marks import NAME
from shared.messages import Entry
from shared.store.change import Also
from shared.store.commit_rows import json_objects
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

PLANNED, BEGUN, DONE = "planned", "begun", "done"
RESPONSE, CALL, LONE = "response", "call", "lone"  # kinds: a model's row, a call of such a row, a call without one


class Fenced(TypedDict):
    """What every write of a step compares."""

    run: str
    holder: str
    session_id: str
    version: int


class HeldRun(TypedDict):
    """The same, and the run itself as it is opened."""

    run: str
    holder: str
    session_id: str
    version: int
    session_key: str
    inbound_id: str
    now: int


class RunsSql(Protocol):
    """The statements of runs.sql, with the values that each needs."""

    def hold_run(self, **run: Unpack[HeldRun]) -> Step: ...
    def add_steps(self, *, steps: str, **fence: Unpack[Fenced]) -> Step: ...
    def begin_step(self, *, n: int, effect: str, now: int, **fence: Unpack[Fenced]) -> Step: ...
    def end_step(self, *, n: int, effect: str, body: str, now: int, **fence: Unpack[Fenced]) -> Step: ...
    def take_run_up(self, *, run: str, holder: str, seen: str, inbound_id: str) -> Step: ...
    def steps_of_run(self, *, run: str) -> Step: ...
    def unknown_steps(self, *, session_id: str, turn_id: str) -> Step: ...
    def run_holder(self, *, run: str) -> Step: ...
    def commit_no_steps(self, *, run: str, session_id: str, turn_id: str) -> Step: ...
    def commit_no_run(self, *, run: str, session_id: str, turn_id: str) -> Step: ...
    def runs_left_over(self, *, before: int, limit: int) -> Step: ...
    def forget_steps(self, *, run: str) -> Step: ...
    def forget_run(self, *, run: str) -> Step: ...


sql = declared(RunsSql)


@value
class Hold:
    """By what right steps are written: whose run it is, under which lease, on which version of the session."""

    run: str
    holder: str  # the lease's token
    session_id: str
    version: int
    session_key: str
    inbound_id: str


@value
class RecordedStep:
    """A step as the database has it."""

    n: int
    kind: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    effect: Effect | None = None
    state: str = PLANNED
    row: Entry | None = None  # of a response
    took: tuple[Entry, ...] = ()  # of a response: the users' rows of mail that its request showed first
    outcome: Stepped | None = None  # of a call that is done
    begun_at: int | None = None  # wall clock, ms


class Runs:
    """Writes steps down, and finds them again. False: nothing was written, because the turn is another's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, hold: Hold, steps: Sequence[RecordedStep]) -> bool:
        """Add steps at the end of the run, which is opened where it is not there yet."""
        rows = f"[{json_objects([_columns(step) for step in steps]).decode()}]"
        fence: Fenced = _fence(hold)
        return await self._write(hold, sql.add_steps(steps=rows, **fence))

    async def begin(self, hold: Hold, n: int, effect: Effect) -> bool:
        """A call begins now. To be called before it can have any effect."""
        fence: Fenced = _fence(hold)
        return await self._write(hold, sql.begin_step(n=n, effect=effect.value, now=now_ms(), **fence))

    async def end(self, hold: Hold, n: int, effect: Effect, stepped: Stepped) -> bool:
        """A call has ended so."""
        body = encode_text({"text": storable(stepped.text), "ok": stepped.ok, "how": stepped.how.value})
        fence: Fenced = _fence(hold)
        return await self._write(hold, sql.end_step(n=n, effect=effect.value, body=body, now=now_ms(), **fence))

    async def holder(self, run: str) -> tuple[str, int] | None:
        """The token of the lease that holds a run, and the number of the last step whose cost a commit has counted; None where
        there is no such run."""
        [rows] = await self._database.read(sql.run_holder(run=run))
        return (str(rows[0]["holder"]), int(rows[0]["counted"])) if rows else None

    async def take_up(self, hold: Hold, seen: str) -> bool:
        """Make a run ours, if `seen` still holds it. From then on every step of that holder is refused."""
        step = sql.take_run_up(run=hold.run, holder=hold.holder, seen=seen, inbound_id=hold.inbound_id)
        [taken] = await self._database.write(step)
        return bool(taken)

    async def steps(self, run: str) -> list[RecordedStep]:
        """All that a run has done, in order."""
        [rows] = await self._database.read(sql.steps_of_run(run=run))
        return [_recorded(row) for row in rows]

    async def unknown(self, session_id: str, turn_id: str) -> list[str]:
        """The names of the tools that a committed turn called and that may have happened, in order."""
        [rows] = await self._database.read(sql.unknown_steps(session_id=session_id, turn_id=turn_id))
        return [str(orjson.loads(row["data"]).get(NAME, "")) for row in rows]

    async def forget_left_over(self, before: int, limit: int) -> int:
        """Delete some runs from before that time whose message has ended without them. Gives how many."""
        [rows] = await self._database.read(sql.runs_left_over(before=before, limit=limit))
        for row in rows:
            await self._database.write(sql.forget_steps(run=row["id"]), sql.forget_run(run=row["id"]))
        return len(rows)

    async def _write(self, hold: Hold, step: Step) -> bool:
        run: HeldRun = {
            **_fence(hold),
            "session_key": hold.session_key,
            "inbound_id": hold.inbound_id,
            "now": now_ms(),
        }
        _, written = await self._database.write(sql.hold_run(**run), step)
        return bool(written)


def run_of(inbound_id: str) -> str:
    """The id of the run that answers an inbound. transcript.sql finds it the same way."""
    return f"run_{inbound_id}"


def end_run(run: str) -> tuple[Also, ...]:
    """Statements of a commit: the run is over, and nothing of it is kept but what the commit itself writes."""
    return (
        lambda stamp: sql.commit_no_steps(run=run, session_id=stamp.session_id, turn_id=stamp.turn_id),
        lambda stamp: sql.commit_no_run(run=run, session_id=stamp.session_id, turn_id=stamp.turn_id),
    )


def _fence(hold: Hold) -> Fenced:
    return {"run": hold.run, "holder": hold.holder, "session_id": hold.session_id, "version": hold.version}


def _columns(step: RecordedStep) -> dict[str, object]:
    row = step.row
    return {
        "n": step.n,
        "kind": step.kind,
        "call_id": step.call_id,
        "name": step.name,
        "arguments": step.arguments,
        "effect": step.effect.value if step.effect is not None else "",
        "state": step.state,
        "body": _body(row, step.took) if row is not None else "",
        "begun_at": step.begun_at,
    }


def _body(row: Entry, took: Sequence[Entry]) -> str:
    body: dict[str, object] = {"text": storable(row.text), "data": row.data}
    if took:
        body["took"] = [{"text": storable(one.text), "inbound_id": one.inbound_id, "data": one.data} for one in took]
    return encode_text(body)


def _took(body: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple([Entry("user", one["text"], one["inbound_id"], one["data"]) for one in body.get("took", ())])


def _recorded(row: Row) -> RecordedStep:
    body = orjson.loads(row["body"]) if row["body"] else None
    is_response = row["kind"] == RESPONSE
    return RecordedStep(
        row["n"],
        row["kind"],
        row["call_id"],
        row["name"],
        row["arguments"],
        Effect(row["effect"]) if row["effect"] else None,
        row["state"],
        Entry("assistant", body["text"], data=body["data"]) if body is not None and is_response else None,
        _took(body) if body is not None and is_response else (),
        Stepped(body["text"], body["ok"], How(body["how"])) if body is not None and not is_response else None,
        row["begun_at"],
    )

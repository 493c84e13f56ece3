"""Questions to people: tables asks and runs.

A turn that asks ends by an ordinary commit, which keeps its run with all its steps and adds the questions. Nothing waits for
the answer: it is mail, and the turn that it begins takes the run up. After a crash a question is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypedDict, Unpack

import orjson

from shared.agent.events import Ask
from shared.agent.turn import Said
from shared.choices import ask_id
from shared.codec import decode_source, encode_text, from_fields
from shared.errors import Malformed
from shared.messages import Source
from shared.store.change import Also
from shared.store.commit_rows import json_objects
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.value import value

UNANSWERED = timedelta(days=30)  # how long a question waits that names no time
LONGEST = timedelta(days=366)  # that a question waits: an agent may name any time, also one that no calendar has


class ParkedRun(TypedDict):
    """A run that waits for a person; `counted`: up to which of its steps the commit counts what they cost."""

    run: str
    session_id: str
    session_key: str
    inbound_id: str
    turn_id: str
    counted: int
    now: int


class AsksSql(Protocol):
    """The statements of asks.sql, with the values that each needs."""

    def commit_parked_run(self, **run: Unpack[ParkedRun]) -> Step: ...
    def commit_ended_asks(self, *, run: str, state: str, session_id: str, turn_id: str, now: int) -> Step: ...
    def commit_asks(
        self, *, run: str, asks: str, session_id: str, session_key: str, turn_id: str, now: int
    ) -> Step: ...
    def commit_answer(self, *, ask: str, answer: str, session_id: str, turn_id: str, now: int) -> Step: ...
    def open_asks(self, *, session_key: str) -> Step: ...
    def asks_page(self, *, after_at: int, after_id: str, limit: int) -> Step: ...
    def asks_of_key(self, *, session_key: str, limit: int) -> Step: ...
    def ask_by_id(self, *, ask: str) -> Step: ...
    def calls_of_runs(self, *, runs: str) -> Step: ...
    def withdraw_ask(self, *, ask: str, now: int) -> Step: ...
    def answers_of_run(self, *, run: str) -> Step: ...
    def last_ended_ask(self, *, session_key: str) -> Step: ...
    def asks_overdue(self, *, now: int, after_at: int, after_id: str, limit: int) -> Step: ...
    def unmark_waiting(self, *, ask: str) -> Step: ...
    def drop_unmarked(self, *, ask: str) -> Step: ...
    def expire_ask(self, *, ask: str, now: int) -> Step: ...
    def forget_asks(self, *, before: int) -> Step: ...


sql = declared(AsksSql)


@value
class OpenAsk:
    """A question that somebody may still answer."""

    id: str
    run_id: str
    session_id: str
    name: str  # Ask.id
    text: str
    choices: tuple[str, ...]
    is_approval: bool
    source: Source  # who was asked, and where
    expires_at: int | None  # wall clock, ms
    asked_at: int  # the same

    @property
    def number(self) -> int:
        return ask_number(self.id)


@value
class FoundAsk:
    """A question by its id, open or not."""

    state: str
    session_key: str  # of the conversation that asked
    source: Source  # who was asked, and where


@value
class OverdueAsk:
    """A question whose time is over."""

    id: str
    text: str
    session_key: str  # of the conversation that asked
    expires_at: int
    source_json: str

    @property
    def source(self) -> Source:
        """Who was asked, and where; Malformed where the record cannot be read."""
        return read_source(self.source_json)


class AskStore:
    """Finds questions; commits write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, session_key: str) -> list[OpenAsk]:
        """The open questions of a conversation, oldest first."""
        [rows] = await self._database.read(sql.open_asks(session_key=session_key))
        return [_open(row) for row in rows]

    async def page(self, after: tuple[int, str], limit: int) -> list[Row]:
        """Open questions of everybody, the oldest first, after a time (wall clock, ms) and an id."""
        [rows] = await self._database.read(sql.asks_page(after_at=after[0], after_id=after[1], limit=limit))
        return rows

    async def of_key(self, session_key: str, limit: int) -> list[Row]:
        """Open questions of one conversation, the oldest first."""
        [rows] = await self._database.read(sql.asks_of_key(session_key=session_key, limit=limit))
        return rows

    async def row(self, ask: str) -> Row | None:
        """What operators see of a question, however it stands."""
        [rows] = await self._database.read(sql.ask_by_id(ask=ask))
        return rows[0] if rows else None

    async def planned_calls(self, runs: Iterable[str]) -> list[Row]:
        """The tool calls that these runs have planned and not begun, in order."""
        listed = encode_text([{"id": run} for run in dict.fromkeys(runs)])
        [rows] = await self._database.read(sql.calls_of_runs(runs=listed))
        return rows

    async def withdraw(self, ask: str, now: int) -> bool:
        """Let the time of a question be over now: a housekeeper ends it as it ends those that nobody answered in time. False: it
        is not open, or its time was over."""
        [rows] = await self._database.write(sql.withdraw_ask(ask=ask, now=now))
        return bool(rows)

    async def answers(self, run: str) -> dict[str, Said]:
        """What was said to the questions of a run that are answered already, by `Ask.id`."""
        [rows] = await self._database.read(sql.answers_of_run(run=run))
        return {row["name"]: from_fields(Said, orjson.loads(row["answer"])) for row in rows}

    async def find(self, ask: str) -> FoundAsk | None:
        """The question with this id; None: there is none, or it ended long ago."""
        row = await self.row(ask)
        return FoundAsk(row["state"], row["session_key"], read_source(row["source"])) if row is not None else None

    async def last_ended(self, session_key: str) -> str | None:
        """How the last question of a conversation ended that is still known; None: there was none."""
        [rows] = await self._database.read(sql.last_ended_ask(session_key=session_key))
        return str(rows[0]["state"]) if rows else None

    async def overdue(self, now: int, after: OverdueAsk | None, limit: int) -> list[OverdueAsk]:
        """Some open questions whose time is over, the oldest first, from behind `after` on."""
        at, id = (after.expires_at, after.id) if after is not None else (0, "")
        [rows] = await self._database.read(sql.asks_overdue(now=now, after_at=at, after_id=id, limit=limit))
        return [OverdueAsk(**row) for row in rows]

    async def expire(self, ask: str, now: int) -> None:
        """End a question that no turn could end. Its run does not go on, and is deleted as a leftover. Cut short anywhere, it may be
        repeated: the question ends last."""
        await self._database.write(sql.unmark_waiting(ask=ask))
        await self._database.write(sql.drop_unmarked(ask=ask))
        await self._database.write(sql.expire_ask(ask=ask, now=now))

    async def forget(self, before: int) -> None:
        """Delete the questions that ended before a time."""
        await self._database.write(sql.forget_asks(before=before))


def ask_number(id: str) -> int:
    """The number that the chat was shown a question with, among the questions of its turn. It stays when others are answered."""
    return int(id.rpartition("_")[2]) + 1


def park(run: str, inbound_id: str, source: Source, asks: Sequence[Ask], counted: int) -> tuple[Also, ...]:
    """Statements of a commit: the run waits for the answers to these questions. The commit counts what its steps have cost, up to
    the one with the number `counted`."""

    def added(turn_id: str, now: int) -> str:
        rows = [
            {
                "id": ask_id(turn_id, n),  # open questions are numbered for people in this order
                "name": ask.id,
                "text": ask.text,
                "choices": encode_text(ask.choices),
                "is_approval": int(ask.call is not None),
                "source": encode_text(source),
                "expires_at": now + _ms(ask.expires if ask.expires is not None else UNANSWERED),
            }
            for n, ask in enumerate(asks)
        ]
        return f"[{json_objects(rows).decode()}]"

    return (
        lambda stamp: sql.commit_parked_run(
            run=run,
            inbound_id=inbound_id,
            session_id=stamp.session_id,
            session_key=stamp.session_key,
            turn_id=stamp.turn_id,
            counted=counted,
            now=stamp.now,
        ),
        lambda stamp: sql.commit_asks(
            run=run,
            asks=added(stamp.turn_id, stamp.now),
            session_id=stamp.session_id,
            session_key=stamp.session_key,
            turn_id=stamp.turn_id,
            now=stamp.now,
        ),
    )


def end_asks(run: str, state: str) -> tuple[Also, ...]:
    """A statement of a commit: no question of the run is open any more."""
    return (
        lambda stamp: sql.commit_ended_asks(
            run=run, state=state, session_id=stamp.session_id, turn_id=stamp.turn_id, now=stamp.now
        ),
    )


def keep_answer(ask: OpenAsk, said: Said) -> Also:
    """A statement of a commit: this question is answered, and its run waits for others."""
    return lambda stamp: sql.commit_answer(
        ask=ask.id, answer=encode_text(said), session_id=stamp.session_id, turn_id=stamp.turn_id, now=stamp.now
    )


def _open(row: Row) -> OpenAsk:
    return OpenAsk(
        row["id"],
        row["run_id"],
        row["session_id"],
        row["name"],
        row["text"],
        tuple(orjson.loads(row["choices"])),
        bool(row["is_approval"]),
        read_source(row["source"]),
        row["expires_at"],
        row["created_at"],
    )


def read_source(record: str) -> Source:
    """Who was asked, and where; Malformed where the record cannot be read."""
    try:
        fields = orjson.loads(record)
    except orjson.JSONDecodeError:
        raise Malformed("the source of a question is no JSON") from None
    return decode_source(fields)


def _ms(time: timedelta) -> int:
    return int(min(max(time, timedelta(0)), LONGEST).total_seconds() * 1000)

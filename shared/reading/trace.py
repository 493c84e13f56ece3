"""What happened to one message, stage by stage, and where it is now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from shared import keys
from shared.clock import moment
from shared.errors import CannotDo, Malformed, NotFound, Unavailable
from shared.lane import Lane
from shared.lane_key import conversation_of
from shared.messages import State
from shared.pipeline import Pipeline
from shared.reading.keys import KeyState, state_of_key
from shared.session_key import SessionKey
from shared.store.database import Row
from shared.store.runs import RESPONSE, run_of
from shared.value import value

UNSENT = ("pending", "sending")


@value
class PassedStage:
    """A stage that a message has passed. `part` is the number of the reply part that was sent, where one was."""

    stage: str
    part: int | None
    at: datetime
    ms: int | None  # since the stage before


@value
class TracedPart:
    """One part of the reply, and what became of it."""

    ordinal: int
    state: str
    attempts: int
    ambiguous: bool
    receipt: str | None
    reason: str | None
    destination: str


@value
class TracedStep:
    """A tool call of a turn that has not ended, or one of which nobody knows how it ended."""

    name: str
    state: str  # planned, begun or done; unknown: it may have happened, and was not run again
    begun_at: datetime | None


@value
class Trace:
    """A message with every stage it has passed. What only Redis knows yet has no stages and no event."""

    id: str
    event_id: str | None
    platform: str | None
    state: str
    session_key: str | None
    seq: int | None
    turn_id: str | None
    attempts: int
    reason: str | None
    stages: tuple[PassedStage, ...]
    worker: str | None
    parts: tuple[TracedPart, ...]
    steps: tuple[TracedStep, ...] = ()  # filled in by `with_steps`

    @property
    def timings(self) -> dict[str, datetime]:
        """When each stage was passed. Of several parts, the first begins the sending and the last ends it."""
        times: dict[str, datetime] = {}
        for passed in self.stages:
            if passed.stage != "sending" or "sending" not in times:
                times[passed.stage] = passed.at
        return times


@value
class UnknownKey:
    """A key whose Redis does not answer."""

    lane: str
    key: str
    reason: str
    state: str = "unknown"


async def trace(pipe: Pipeline, id: str) -> Trace | None:
    """Where an inbound stands, with the time of each stage it has passed. None: nobody has heard of it."""
    row = await pipe.store.journal.find(id)
    if row is None:
        return await _unjournaled(pipe, id)
    turn = await pipe.store.sessions.turn(row["turn_id"]) if row["turn_id"] else None
    parts = await pipe.store.outbox.of_turn(row["turn_id"]) if row["turn_id"] else []
    return Trace(
        id=row["id"],
        event_id=row["event_id"] or None,
        platform=row["platform"],
        state=row["state"],
        session_key=row["session_key"] or None,
        seq=row["seq"],
        turn_id=row["turn_id"],
        attempts=row["attempts"],
        reason=row["reason"],
        stages=_stages(row, turn, parts),
        worker=turn["worker"] if turn is not None else None,
        parts=tuple(map(_part, parts)),
    )


async def find_message(pipe: Pipeline, id: str) -> Trace:
    """The message of an id of ours or of a platform's event id; CannotDo where several platforms used that event id."""
    found = await trace(pipe, id)
    if found is None:
        rows = await pipe.store.journal.of_event(id)
        if len(rows) > 1:
            ids = ", ".join(f"{row['id']} ({row['platform']})" for row in rows)
            raise CannotDo(f"{id} is the event of several messages, name one: {ids}")
        found = await trace(pipe, rows[0]["id"]) if rows else None
    if found is None:
        raise NotFound(f"no message {id}: give our id (in_…) or the platform's event id")
    return found


async def keys_ahead(pipe: Pipeline, message: Trace) -> tuple[KeyState | UnknownKey, ...]:
    """How the keys stand now that a message still has to pass: its own, and that of the chat its reply goes to."""
    ahead: list[KeyState | UnknownKey] = []
    if message.state == State.PENDING and message.session_key is not None:
        ahead.append(await _state(pipe.lane_of(message.session_key), message.session_key))
    unsent = [part.destination for part in message.parts if part.state in UNSENT]
    return (*ahead, *[await _state(pipe.deliveries, destination) for destination in dict.fromkeys(unsent)])


async def with_steps(pipe: Pipeline, message: Trace) -> Trace:
    """The message with what its tools do while its turn runs; afterwards, with the calls that may have happened."""
    runs = pipe.store.runs
    turn = await pipe.store.sessions.turn(message.turn_id) if message.turn_id else None
    if turn is not None:
        names = await runs.unknown(turn["session_id"], turn["id"])
        return replace(message, steps=tuple(TracedStep(name, "unknown", None) for name in names))
    found = [step for step in await runs.steps(run_of(message.id)) if step.kind != RESPONSE]
    steps = [TracedStep(step.name, step.state, moment(step.begun_at) if step.begun_at else None) for step in found]
    return replace(message, steps=tuple(steps))


def reason_word(reason: str | None) -> str | None:
    """A reason without its details, which may be an exception's text: those are for operators alone."""
    return reason and reason.partition(":")[0]


async def _state(lane: Lane, key: str) -> KeyState | UnknownKey:
    try:
        return await state_of_key(lane, key)
    except Unavailable as error:
        return UnknownKey(lane.name, key, str(error))


def _stages(row: Row, turn: Row | None, parts: list[Row]) -> tuple[PassedStage, ...]:
    passed: list[tuple[str, int, int | None]] = [("received", row["received_at"], None)]
    if turn is not None:
        passed += [(stage, turn[f"{stage}_at"], None) for stage in ("claimed", "started", "committed")]
    elif row["finished_at"] is not None:  # it ended by itself: a control message, or one that an operator dropped
        passed.append(("committed", row["finished_at"], None))
    for part in parts:
        for stage in ("sending", "sent"):
            if part[f"{stage}_at"] is not None:
                passed.append((stage, part[f"{stage}_at"], part["ordinal"]))
    before: list[int | None] = [None, *(at for _, at, _ in passed)]
    return tuple(
        PassedStage(stage, ordinal, moment(at), at - last if last is not None else None)
        for (stage, at, ordinal), last in zip(passed, before, strict=False)
    )


def _part(row: Row) -> TracedPart:
    sent = (row["ordinal"], row["state"], row["attempts"], bool(row["ambiguous"]), row["receipt"], row["reason"])
    return TracedPart(*sent, row["destination"])


async def _unjournaled(pipe: Pipeline, id: str) -> Trace | None:
    """With durability = redis, a message is in SQL only when its turn has ended."""
    if pipe.settings.durability == "journal":
        return None
    kept = await pipe.servers.each(lambda server: server.asked(server.client.get(keys.seen(id))))
    for key in kept:
        if key is not None:
            session_key, platform = _conversation(key)
            return Trace(
                id=id,
                event_id=None,
                platform=platform,
                state=State.PENDING,
                session_key=session_key,
                seq=None,
                turn_id=None,
                attempts=0,
                reason=None,
                stages=(),
                worker=None,
                parts=(),
            )
    return None


def _conversation(kept: bytes | str) -> tuple[str | None, str | None]:
    """The key and platform of a message that only Redis knows; neither where an older version took it in."""
    try:
        session_key = kept.decode() if isinstance(kept, bytes) else kept
        return session_key, SessionKey.parse(conversation_of(session_key)).platform
    except (Malformed, UnicodeDecodeError):
        return None, None

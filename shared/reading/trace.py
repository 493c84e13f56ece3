"""What happened to one message, stage by stage, and where it is now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from shared import keys
from shared.clock import iso
from shared.codec import decode_source
from shared.control import conversation_of
from shared.errors import Malformed, Unavailable
from shared.lane import Lane
from shared.lane.operator import look
from shared.messages import Destination, State
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.store.database import Row

UNSENT = ("pending", "sending")
_PART = ("ordinal", "state", "attempts", "ambiguous", "receipt", "reason")


async def trace(pipe: Pipeline, id: str) -> dict[str, Any] | None:
    """Where an inbound stands, with the time of each stage it has passed. None: nobody has heard of it."""
    row = await pipe.store.journal.find(id)
    if row is None:
        return await _unjournaled(pipe, id)
    turn = await pipe.store.sessions.turn(row["turn_id"]) if row["turn_id"] else None
    parts = await pipe.store.outbox.of_turn(row["turn_id"]) if row["turn_id"] else []
    stages = _stages(row, turn, parts)
    timings: dict[str, str] = {}
    for stage in stages:  # of several parts, the first begins the sending and the last ends it
        if stage["stage"] != "sending" or "sending" not in timings:
            timings[stage["stage"]] = stage["at"]
    return {
        "id": row["id"],
        "event_id": row["event_id"],
        "platform": row["platform"],
        "state": row["state"],
        "session_key": row["session_key"],
        "seq": row["seq"],
        "turn_id": row["turn_id"],
        "attempts": row["attempts"],
        "reason": row["reason"],
        "timings": timings,
        "stages": stages,
        "worker": turn["worker"] if turn is not None else None,
        "parts": [{**{name: part[name] for name in _PART}, "destination": _destination(part)} for part in parts],
    }


def reason_word(reason: str | None) -> str | None:
    """A reason without its details, which may be an exception's text: those are for operators alone."""
    return reason and reason.partition(":")[0]


async def whereabouts(pipe: Pipeline, found: dict[str, Any]) -> dict[str, Any]:
    """What Redis knows now of a traced message that has not come to its end: by lane, how its key stands."""
    now: dict[str, Any] = {}
    if found["state"] == State.PENDING and found["session_key"] is not None:
        lane = pipe.lane_of(found["session_key"])
        now[lane.name] = await _standing(lane, found["session_key"])
    for part in found["parts"]:
        if part["state"] in UNSENT:
            now["deliveries"] = await _standing(pipe.deliveries, part["destination"])
    return now


async def _standing(lane: Lane, key: str) -> dict[str, Any]:
    try:
        return asdict(await look(lane, key))
    except Unavailable as error:
        return {"lane": lane.name, "key": key, "state": "unknown", "reason": str(error)}


def _stages(row: Row, turn: Row | None, parts: list[Row]) -> list[dict[str, Any]]:
    """Each stage passed, in order, with the milliseconds since the one before."""
    passed: list[tuple[str, int, int | None]] = [("received", row["received_at"], None)]
    if turn is not None:
        passed += [(stage, turn[f"{stage}_at"], None) for stage in ("claimed", "started", "committed")]
    for part in parts:
        for stage in ("sending", "sent"):
            if part[f"{stage}_at"] is not None:
                passed.append((stage, part[f"{stage}_at"], part["ordinal"]))
    before: list[int | None] = [None, *(at for _, at, _ in passed)]
    return [
        {"stage": stage, "part": ordinal, "at": iso(at), "ms": at - last if last is not None else None}
        for (stage, at, ordinal), last in zip(passed, before, strict=False)
    ]


def _destination(part: Row) -> str:
    source = decode_source(orjson.loads(part["payload"])["source"])
    return str(Destination(source.platform, source.account, source.chat))


async def _unjournaled(pipe: Pipeline, id: str) -> dict[str, Any] | None:
    """With durability = redis, a message is in SQL only when its turn has ended."""
    if pipe.settings.durability == "journal":
        return None
    for server in pipe.servers.all:
        if (key := await server.asked(server.client.get(keys.seen(id)))) is not None:
            unknown = dict.fromkeys(("event_id", "seq", "turn_id", "reason", "worker"))
            session_key, platform = _conversation(key)
            return {
                "id": id,
                "platform": platform,
                "state": State.PENDING,
                "session_key": session_key,
                "attempts": 0,
                "timings": {},
                "stages": [],
                "parts": [],
                **unknown,
            }
    return None


def _conversation(kept: bytes | str) -> tuple[str | None, str | None]:
    """The key and platform of a message that only Redis knows; neither where an older version took it in."""
    try:
        session_key = kept.decode() if isinstance(kept, bytes) else kept
        return session_key, SessionKey.parse(conversation_of(session_key)).platform
    except (Malformed, UnicodeDecodeError):
        return None, None

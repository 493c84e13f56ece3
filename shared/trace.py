"""What happened to one message, stage by stage."""

from __future__ import annotations

from typing import Any

from shared import keys
from shared.clock import iso
from shared.messages import State
from shared.pipeline import Pipeline


async def trace(pipe: Pipeline, id: str) -> dict[str, Any] | None:
    """Where an inbound stands, with the time of each stage it has passed. None: nobody has heard of it."""
    row = await pipe.store.journal.find(id)
    if row is None:
        return await _unjournaled(pipe, id)
    turn = await pipe.store.transcript.turn(row["turn_id"]) if row["turn_id"] else None
    parts = await pipe.store.outbox.of_turn(row["turn_id"]) if row["turn_id"] else []
    timings = {"received": row["received_at"]}
    if turn is not None:
        timings |= {"claimed": turn["claimed_at"], "started": turn["started_at"], "committed": turn["committed_at"]}
    for part in parts:
        for stage in ("sending", "sent"):
            if part[f"{stage}_at"] is not None:
                timings[stage] = part[f"{stage}_at"]
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
        "timings": {stage: iso(at) for stage, at in timings.items()},
        "stages": [(stage, at) for stage, at in timings.items()],
        "worker": turn["worker"] if turn is not None else None,
        "parts": [
            {name: part[name] for name in ("ordinal", "state", "attempts", "ambiguous", "reason")} for part in parts
        ],
    }


async def _unjournaled(pipe: Pipeline, id: str) -> dict[str, Any] | None:
    """With durability = redis, a message is in SQL only when its turn has ended."""
    if pipe.settings.durability == "journal":
        return None
    for server in pipe.servers.all:
        if await server.client.exists(keys.seen(id)):
            unknown = dict.fromkeys(("event_id", "platform", "session_key", "seq", "turn_id", "reason", "worker"))
            return {
                "id": id,
                "state": State.PENDING,
                "attempts": 0,
                "timings": {},
                "stages": [],
                "parts": [],
                **unknown,
            }
    return None

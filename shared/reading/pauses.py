"""What is paused: by whom, since when, and what waits behind it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime

from shared.clock import moment
from shared.lane.pausing import count_parked
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pause_scope import ScopeKind, stored_scope
from shared.pipeline import Pipeline
from shared.reading.overview import ANSWER_SECONDS, in_time
from shared.store.database import Row
from shared.value import value

# The pauses are read from SQL first. Counting what waits behind them must leave time to show them when Redis is silent.
COUNTING_SECONDS = ANSWER_SECONDS / 2


@value
class Pause:
    """Something that is held back. A key that two pauses hold is counted with the narrower one."""

    scope: str
    kind: ScopeKind
    name: str  # the lane's or the platform's, or the key
    who: str
    since: datetime
    conversations: int  # that wait behind it
    destinations: int  # chats whose replies wait behind it
    controls: int  # conversations whose control messages do

    @property
    def waiting(self) -> str:
        """What waits behind it, in words."""
        said = [
            f"{count:,} {one if count == 1 else several}"
            for count, one, several in (
                (self.conversations, "conversation", "conversations"),
                (self.destinations, "chat with replies", "chats with replies"),
                (self.controls, "conversation with commands", "conversations with commands"),
            )
            if count
        ]
        return " and ".join(said) if said else "nothing yet"


async def pauses_now(pipe: Pipeline) -> tuple[Pause, ...]:
    """All pauses, the longest first; Unavailable where the database does not answer. What waits on a Redis server that does
    not is not counted."""
    stored = await pipe.store.pauses.now()
    scopes = [row["scope"] for row in stored.rows]
    looks = [in_time(count_parked(pipe.lanes, server, scopes), COUNTING_SECONDS) for server in pipe.servers.all]
    parked = Counter[tuple[str, str]]()
    for counts in await asyncio.gather(*looks):
        parked.update(counts or {})
    return tuple(_described(row, parked) for row in stored.rows)


def _described(row: Row, parked: Counter[tuple[str, str]]) -> Pause:
    text = row["scope"]
    scope, since = stored_scope(text), moment(row["since"])
    conversations, destinations, controls = (parked[text, lane] for lane in (TURNS, DELIVERIES, CONTROL))
    return Pause(text, scope.kind, scope.name, row["who"], since, conversations, destinations, controls)

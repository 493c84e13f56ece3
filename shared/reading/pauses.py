"""What is paused: by whom, since when, and what waits behind it."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment
from shared.errors import CannotDo
from shared.lane.pausing import count_parked
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pause_scope import PauseScope, ScopeKind, parse_scope
from shared.pipeline import Pipeline
from shared.value import value


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
    """All pauses, the longest first; Unavailable where a store does not answer."""
    stored = await pipe.store.pauses.now()
    return tuple([await _described(pipe, row["scope"], row["who"], moment(row["since"])) for row in stored.rows])


async def _described(pipe: Pipeline, text: str, who: str, since: datetime) -> Pause:
    try:
        scope = parse_scope(text)
    except CannotDo:  # of a platform that a newer version knows
        scope = PauseScope(ScopeKind.PLATFORM, text)
    parked = {
        lane.name: sum([await count_parked(lane, server, text) for server in pipe.servers.all]) for lane in pipe.lanes
    }
    return Pause(text, scope.kind, scope.name, who, since, parked[TURNS], parked[DELIVERIES], parked[CONTROL])

"""The agent's own schedule, as the settings have it: added, changed or removed with them."""

from __future__ import annotations

from shared import log
from shared.clock import now_ms
from shared.errors import AlreadyDone
from shared.pipeline import Pipeline
from shared.schedules.heartbeat import ID, heartbeat_of
from shared.schedules.schedule import ScheduleState

EVERY_SECONDS = 60.0


class Heartbeat:
    """Keeps one schedule with a fixed id. Several housekeepers may do it at the same time."""

    every_seconds = EVERY_SECONDS

    def __init__(self, pipe: Pipeline) -> None:
        self._config = pipe.settings.schedule.heartbeat
        self._most = pipe.settings.schedule.of_operator
        self._store = pipe.store.schedules

    async def look(self) -> float:
        """Bring the schedule to what the settings say. One that an operator paused stays so."""
        wanted, known = heartbeat_of(self._config, now_ms()), await self._store.find(ID)
        if known is not None and (
            wanted is None
            or (known.rule, known.targets) != (wanted.rule, wanted.targets)
            or known.state is ScheduleState.ENDED
        ):
            await self._store.remove(ID)
            known = None
        if wanted is not None and known is None:
            try:
                await self._store.add(wanted, self._most)
                log.get().info("heartbeat begins", every_minutes=self._config.every_minutes)
            except AlreadyDone:  # another housekeeper was faster
                pass
        return self.every_seconds

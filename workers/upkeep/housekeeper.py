"""Wakes what should be awake. Several may run at once; nothing's safety depends on it, only progress after a loss."""

from __future__ import annotations

import asyncio

from shared.background import survived
from shared.pipeline import Pipeline
from workers.upkeep.asks import OverdueQuestions
from workers.upkeep.blobs import UnreferredBlobs
from workers.upkeep.due import DueKeys
from workers.upkeep.heartbeat import Heartbeat
from workers.upkeep.housekeeping_duty import HousekeepingDuty
from workers.upkeep.index import SearchIndexing
from workers.upkeep.journal import UnknownMail
from workers.upkeep.leaving import LeavingKeys
from workers.upkeep.memory import EndedConversations
from workers.upkeep.old_slots import OldSlots
from workers.upkeep.outbox import UnknownReplies
from workers.upkeep.pauses import KeptPauses
from workers.upkeep.prune import ExpiredRecords
from workers.upkeep.rq_leftovers import RqLeftovers
from workers.upkeep.runs import LeftoverRuns
from workers.upkeep.schedules import DueSchedules
from workers.upkeep.stateless import EndedRequests
from workers.upkeep.stuck import StuckWakes
from workers.upkeep.synthetic import SyntheticMessages
from workers.upkeep.tasks import UnseenTasks

LOOK_LIMIT_SECONDS = 120.0  # the longest that a look may take: what it did stays done, and the next begins anew
LEAST_PAUSE_SECONDS = 0.01


class Housekeeper:
    """Repeats every duty by itself: one that fails, or whose server is away, holds up none of the others."""

    def __init__(self, pipe: Pipeline) -> None:
        self._duties = duties(pipe)

    async def run(self, stopping: asyncio.Event) -> None:
        """Look after everything until `stopping` is set. Killed at any moment, it leaves nothing that another could not do."""
        await asyncio.gather(*(repeat(duty, stopping) for duty in self._duties))


def duties(pipe: Pipeline) -> list[HousekeepingDuty]:
    """All there is to look after: for each Redis server by itself, then for all together."""
    found: list[HousekeepingDuty] = []
    for server in pipe.servers.all:
        found += [DueKeys(pipe, server), StuckWakes(pipe, server), RqLeftovers(pipe, server), LeavingKeys(pipe, server)]
    found += [
        UnknownMail(pipe),
        UnknownReplies(pipe),
        DueSchedules(pipe),
        Heartbeat(pipe),
        UnseenTasks(pipe),
        SearchIndexing(pipe),
        EndedConversations(pipe),
        KeptPauses(pipe),
    ]
    if pipe.settings.synthetic.seconds:
        found.append(SyntheticMessages(pipe))
    found += [LeftoverRuns(pipe), OverdueQuestions(pipe), EndedRequests(pipe), UnreferredBlobs(pipe)]
    return [*found, OldSlots(pipe), ExpiredRecords(pipe)]


async def repeat(duty: HousekeepingDuty, stopping: asyncio.Event) -> None:
    """Look again and again until `stopping` is set, after any error too: progress after a loss depends on it."""
    while not stopping.is_set():
        pause = duty.every_seconds
        try:
            async with asyncio.timeout(LOOK_LIMIT_SECONDS):
                pause = await duty.look()
        except Exception as error:
            survived("housekeeper", "look cut short", error)
        try:
            async with asyncio.timeout(max(pause, LEAST_PAUSE_SECONDS)):
                await stopping.wait()
        except TimeoutError:
            pass

"""The pipeline's parts, put together once per process from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.blobs.contract import Blobs
from shared.blobs.place import open_blobs
from shared.draining import following_drains
from shared.lane import Lane
from shared.lane.wake import WakeTemplate
from shared.lane_key import CONTROL, DELIVERIES, TURNS, lane_of
from shared.redis_servers import Servers
from shared.sending.budgets import SendBudgets
from shared.settings import Settings
from shared.store import Store, open_store
from shared.value import value

JOBS = {  # all that RQ may call
    TURNS: "workers.jobs.take_turns",
    DELIVERIES: "workers.jobs.deliver",
    CONTROL: "workers.jobs.control",
}


@value
class Pipeline:
    """What a process of this deployment works with: settings, Redis servers, store, the three lanes, the place for files
    and how much may be sent."""

    settings: Settings
    servers: Servers
    store: Store
    turns: Lane
    deliveries: Lane
    control: Lane
    blobs: Blobs
    budgets: SendBudgets

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.turns, self.deliveries, self.control

    def lane(self, name: str) -> Lane:
        """The lane of this name."""
        if name == TURNS:
            return self.turns
        if name == DELIVERIES:
            return self.deliveries
        assert name == CONTROL, name
        return self.control

    def lane_of(self, key: str) -> Lane:
        """The lane that a key belongs to, which its text says."""
        return self.lane(lane_of(key))


@asynccontextmanager
async def open_pipeline(settings: Settings) -> AsyncIterator[Pipeline]:
    """Everything a process needs. Opens while servers are down; calls then raise Unavailable until they are back."""
    tls = settings.redis_tls.connecting()
    tls.check()
    blobs = open_blobs(settings)
    servers = Servers(settings.redis_urls(), settings.partitions, tls)
    store = await open_store(settings.database, settings.history_messages, settings.database_connections)
    lanes = [_lane(settings, servers, name) for name in (TURNS, DELIVERIES, CONTROL)]
    try:
        turns, deliveries, control = lanes
        budgets = SendBudgets(servers, settings)
        async with following_drains(servers, store.draining):
            yield Pipeline(settings, servers, store, turns, deliveries, control, blobs, budgets)
    finally:
        for lane in lanes:
            await lane.close()
        await store.database.close()
        await servers.close()


def _lane(settings: Settings, servers: Servers, name: str) -> Lane:
    # RQ's own limit lies beyond ours, so that the turn, not RQ, handles lateness.
    timeout_s = int(settings.turn_timeout_seconds * settings.turns_per_lease) + 60
    wakes = WakeTemplate(JOBS[name], name, timeout_s=timeout_s, result_ttl_s=settings.result_seconds)
    return Lane(servers, wakes, lease=settings.lease, renew_every=settings.heartbeat, partitions=settings.partitions)

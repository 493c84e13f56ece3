"""The pipeline's parts, put together once per process from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from shared.lane import Lane
from shared.lane.wake import WakeTemplate
from shared.redis_servers import Servers
from shared.settings import Settings
from shared.store import Store, open_store

TURNS, DELIVERIES = "turns", "deliveries"
JOBS = {TURNS: "workers.jobs.take_turns", DELIVERIES: "workers.jobs.deliver"}  # all that RQ may call


@dataclass(frozen=True, slots=True)
class Pipeline:
    settings: Settings
    servers: Servers
    store: Store
    turns: Lane
    deliveries: Lane

    def lane(self, name: str) -> Lane:
        return {TURNS: self.turns, DELIVERIES: self.deliveries}[name]


@asynccontextmanager
async def open_pipeline(settings: Settings) -> AsyncIterator[Pipeline]:
    """Everything a process needs. Opens while servers are down; calls then raise Unavailable until they are back."""
    servers = Servers(settings.redis_urls(), settings.partitions)
    store = await open_store(settings.database, settings.history_messages)
    turns, deliveries = _lane(settings, servers, TURNS), _lane(settings, servers, DELIVERIES)
    try:
        yield Pipeline(settings, servers, store, turns, deliveries)
    finally:
        await turns.close()
        await deliveries.close()
        await store.database.close()
        await servers.close()


def _lane(settings: Settings, servers: Servers, name: str) -> Lane:
    # RQ's own limit lies beyond ours, so that the turn, not RQ, handles lateness.
    timeout_s = int(settings.turn_timeout_seconds * settings.turns_per_lease) + 60
    wakes = WakeTemplate(JOBS[name], name, timeout_s=timeout_s, result_ttl_s=settings.result_seconds)
    renew_every = timedelta(seconds=settings.heartbeat_seconds)
    return Lane(servers, wakes, lease=settings.lease, renew_every=renew_every, partitions=settings.partitions)

"""A database with a replica, for runs in which the replica takes its primary's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from tests.faults.databases import migrate, rows_locked
from tests.support.proxy import Proxy
from tests.support.replicas import Replicas, ReplicaServer, open_replicas

OLD_SECONDS = 1.0  # an old primary is up for so long, ready for writes
WRITTEN = ("inbox", "routes", "messages", "turns", "outbox", "dead", "facts")


class ReplicatedGround:
    """Processes know both servers. The checker goes to whichever is the primary."""

    kind = "postgres"
    outage = "PostgreSQL's primary killed and started again"
    lock = "rows of sessions locked"
    network: Proxy | None = None

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.url = replicas.url
        self.straight_url = f"{replicas.url}?target_session_attrs=read-write"

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._replicas.primary.kill()
        try:
            yield
        finally:
            self._replicas.primary.start()

    def locked(self) -> AbstractAsyncContextManager[None]:
        return rows_locked(self.straight_url)

    async def fail_over(self, *, frozen: bool) -> tuple[float, float]:
        """The primary dies, or falls silent, and its replica is promoted. The old primary then comes back as it was, ready for
        writes, and gets none; only then it becomes the new replica. Gives when the primary went and when there was another."""
        replicas = self._replicas
        went, back = await replicas.lose_primary(frozen=frozen)
        replicas.start_old_primary()
        before = await asyncio.to_thread(_rows, replicas.replica)
        await asyncio.sleep(OLD_SECONDS)
        assert await asyncio.to_thread(_rows, replicas.replica) == before, "an old primary was written to"
        await replicas.replicate()
        return went, back


@asynccontextmanager
async def open_replicated() -> AsyncIterator[ReplicatedGround]:
    async with open_replicas() as replicas:
        await migrate(replicas.url)
        yield ReplicatedGround(replicas)


def _rows(server: ReplicaServer) -> list[tuple[str, ...]]:
    """What identifies every row, and its version, of the tables that processes write to."""
    digests = (
        f"(SELECT md5(string_agg(xmin::text || ctid::text, ' ' ORDER BY ctid)) FROM {table})" for table in WRITTEN
    )
    return server.ask(f"SELECT {', '.join(digests)}")

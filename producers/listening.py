"""Step 1 for every platform whose connection we hold: lead → connect → settle → confirm.

One process at a time holds an account's connection. What it brings is confirmed only when it is settled, so a crash, or a
journal that fails in the middle of a batch, brings all of it again; what was journaled then ends as a duplicate.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol

import redis
import uvloop

from producers.heard import Event
from producers.settling import Settler, Understanding
from shared import keys, log
from shared.background import end_tasks
from shared.backoff import backoff
from shared.errors import ConfigurationError, Conflict, Denied, PipelineError, RateLimited
from shared.interpreter import share_with_threads
from shared.leader import Leader
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms import LISTENING
from shared.settings import Settings
from shared.store.database.schema import require_schema

CONFLICT_PAUSE = 30.0
REFUSED_PAUSE = 60.0


class Connection(Understanding, Protocol):
    """What a platform writes to be listened to: the connection of one account."""

    credential: str  # an id of the account, no secret: nobody else may hold its connection at the same time

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Holds the connection. Raises Denied when the platform refuses us, Conflict when it serves somebody else."""

    async def next(self) -> Sequence[Event]:
        """What is new, after waiting for it; perhaps nothing. May be cancelled at any time: the next call brings it then."""

    async def confirm(self, events: Sequence[Event]) -> None:
        """These are settled: the platform need not bring them again."""


class Listener:
    """Listens for one account, while no other process does."""

    def __init__(self, pipe: Pipeline, connection: Connection) -> None:
        self._pipe = pipe
        self._connection = connection
        self._settler = Settler(pipe, connection, sets_aside_when_full=True)  # else one full chat holds up all others
        self._settled: set[str] = set()  # of what is not confirmed yet: nothing is recorded twice
        self._failures = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Listen until `stopping` is set. What was being settled then is settled first."""
        settings, name = self._pipe.settings, keys.listener(self._connection.name, self._connection.credential)
        server = self._pipe.servers.of_key(name)
        async with Leader(server, name, ttl=settings.lease, every=settings.heartbeat) as leader:
            while not stopping.is_set():
                await _first(leader.leads.wait(), stopping.wait())
                pause = await self._hold(leader, stopping)
                await _first(stopping.wait(), asyncio.sleep(pause))

    async def _hold(self, leader: Leader, stopping: asyncio.Event) -> float:
        """Settle what comes until we stop leading or something fails; says how long to wait then."""
        try:
            if leader.leads.is_set() and not stopping.is_set():
                async with self._connection.connected():
                    while leader.leads.is_set() and not stopping.is_set():
                        await self._take(leader, stopping)
        except (Conflict, Denied) as error:
            log.get().error("not listening", platform=self._connection.name, reason=str(error))
            return CONFLICT_PAUSE if isinstance(error, Conflict) else REFUSED_PAUSE
        except RateLimited as error:
            return error.retry_after.total_seconds()
        except Exception as error:  # what is not confirmed comes again
            return self._failed(error)
        return 0

    async def _take(self, leader: Leader, stopping: asyncio.Event) -> None:
        """Wait for what is new, settle it and confirm it. Only the waiting is ever cut short."""
        waiting = asyncio.ensure_future(self._connection.next())
        await _first(waiting, leader.lost.wait(), stopping.wait())
        if waiting.cancelled():
            return
        events = waiting.result()
        await self._settler.settle_all(events, self._settled)
        await self._connection.confirm(events)
        self._settled.clear()
        self._failures = 0

    def _failed(self, error: Exception) -> float:
        expected = isinstance(error, PipelineError | redis.RedisError)
        log.get().warning(
            "not settled, it will come again",
            platform=self._connection.name,
            error=f"{type(error).__name__}: {error}" if expected else type(error).__name__,
            exc_info=None if expected else error,
        )
        self._failures += 1
        return backoff(self._pipe.settings, self._failures).total_seconds()


def listen(config: Settings, platform: str) -> None:
    """Listen until SIGTERM or SIGINT; what was being settled is settled first."""
    if platform not in LISTENING:
        raise ConfigurationError(f"nothing to listen to on {platform}: choose from {', '.join(LISTENING)}")
    block = config.platform(platform)
    if block is None or not block.on:
        raise ConfigurationError(f"listen {platform}: it is off; set the secrets of KEYTURN_{platform.upper()}__…")
    log.setup_for(config, f"listen {platform}")
    share_with_threads()
    uvloop.run(_listen(config, platform))


async def _listen(config: Settings, platform: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        log.get().info("listening", platform=platform)
        await listen_on(pipe, platform, stopping)
        log.get().info("stopped", platform=platform)


async def listen_on(pipe: Pipeline, platform: str, stopping: asyncio.Event) -> None:
    """Listen for every account of a platform, side by side, until `stopping` is set."""
    open_connections: Callable[[Pipeline], AbstractAsyncContextManager[Sequence[Connection]]]
    open_connections = import_module(f"producers.{platform}.listen").open_connections
    async with open_connections(pipe) as connections, asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(Listener(pipe, connection).run(stopping))


async def _first(*waits: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
    """Until one of them ends; the others are ended with it."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*tasks)

"""Step 1 for every platform whose connection we hold: lead → connect → settle → confirm.

One process at a time holds an account's connection. What it brings is confirmed only when it is settled, so a crash, or a
journal that fails in the middle of a batch, brings all of it again; what was journaled then ends as a duplicate.
Where the platform never brings anything again (`spools`), a file keeps what came until it is settled: producers/spool.py. Then
"confirmed" means "in the file", and settling from the file needs neither the lead nor the connection.
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
from yarl import URL

from producers.heard import Event
from producers.reloading import RunningProducer
from producers.settling import Settler, Understanding
from producers.spool import Spool, spool_path
from shared import keys, log
from shared.background import end_tasks, survived
from shared.backoff import backoff
from shared.errors import ConfigurationError, Conflict, Denied, PipelineError, RateLimited
from shared.interpreter import share_with_threads
from shared.leader import Leader
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms import LISTENING
from shared.platforms.settings import PlatformSettings
from shared.probe import open_probe
from shared.settings import Settings
from shared.store.database.schema import require_schema
from shared.tracing import open_tracing

CONFLICT_PAUSE = 30.0
REFUSED_PAUSE = 60.0


class NotSettled(Exception):
    """What a connection brought could not be settled; the connection itself is not to blame. `error` says why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Connection(Understanding, Protocol):
    """What a platform writes to be listened to: the connection of one account."""

    credential: str  # an id of the account, no secret: nobody else may hold its connection at the same time
    spools: bool = False  # True: the platform brings nothing again, so events are kept on disk until they are settled
    is_late: bool = False  # True: `connected` begins before the connection stands; it logs `listening` itself then

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Holds the connection: the block begins when the platform has answered. Raises Denied when the platform refuses us,
        Conflict when it serves somebody else."""

    async def next(self) -> Sequence[Event]:
        """What is new, after waiting for it; perhaps nothing. May be cancelled at any time: the next call brings it then."""

    async def confirm(self, events: Sequence[Event]) -> None:
        """These are settled, or in the spool: the platform need not bring them again."""

    async def prepare(self, events: Sequence[Event]) -> None:
        """Ask the platform for what `normalise` needs of events from the spool. Whatever this raises, they stay there and are
        tried again. The connection need not stand."""
        return


class Listener:
    """Listens for one account, while no other process does."""

    def __init__(self, pipe: Pipeline, connection: Connection) -> None:
        self._pipe = pipe
        self._connection = connection
        self._spool: Spool | None = None
        if connection.spools:
            self._spool = Spool(spool_path(pipe.settings.data_dir, connection.name, connection.credential))
        block = pipe.settings.platform(connection.name)
        self._host = ", ".join(sorted(hosts_of(block))) if block is not None else ""
        self._settler = Settler(pipe, connection, sets_aside_when_full=True)  # else one full chat holds up all others
        self._settled: set[str] = set()  # of what is not confirmed yet: nothing is recorded twice
        self._failures = 0
        self._is_listening = False  # and the log says so

    async def run(self, stopping: asyncio.Event) -> None:
        """Listen until `stopping` is set. What was being settled then is settled first.

        What is in the spool is settled all the time, whoever leads and whether or not the connection stands."""
        if self._spool is None:
            await self._listen(stopping)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(stopping))
                group.create_task(self._settle_spooled(self._spool, stopping))
                group.create_task(self._adopt_spooled(self._spool, stopping))
        finally:
            self._spool.close()

    async def _listen(self, stopping: asyncio.Event) -> None:
        settings, name = self._pipe.settings, keys.listener(self._connection.name, self._connection.credential)
        async with Leader(self._pipe.servers, name, ttl=settings.lease, every=settings.heartbeat) as leader:
            while not stopping.is_set():
                await _first(leader.leads.wait(), stopping.wait())
                pause = await self._hold(leader, stopping)
                await _first(stopping.wait(), asyncio.sleep(pause))

    async def _hold(self, leader: Leader, stopping: asyncio.Event) -> float:
        """Take what comes until we stop leading or something fails; says how long to wait then."""
        try:
            if leader.leads.is_set() and not stopping.is_set():
                if self._spool is not None:
                    await self._adopt(self._spool)  # what came to the last leader is older than all that comes now
                async with self._connection.connected():
                    self._connected()
                    while leader.leads.is_set() and not stopping.is_set():
                        await self._take(leader, stopping)
        except NotSettled as failed:  # what is not confirmed comes again
            self._failures += 1
            return self._not_settled(failed.error, self._failures)
        except (Conflict, Denied) as error:
            seconds = CONFLICT_PAUSE if isinstance(error, Conflict) else REFUSED_PAUSE
            self._is_listening = False
            log.get().error("not listening", host=self._host, **self._about(error), seconds=seconds)
            return seconds
        except RateLimited as error:  # a platform may say "wait 0 s" for ever
            self._failures += 1
            wait = max(error.retry_after, backoff(self._pipe.settings, self._failures))
            return self._not_connected(error, wait.total_seconds())
        except Exception as error:
            self._failures += 1
            return self._not_connected(error, backoff(self._pipe.settings, self._failures).total_seconds())
        return 0

    async def _take(self, leader: Leader, stopping: asyncio.Event) -> None:
        """Wait for what is new, settle or spool it, and confirm it. Only the waiting is ever cut short."""
        waiting = asyncio.ensure_future(self._connection.next())
        await _first(waiting, leader.lost.wait(), stopping.wait())
        if waiting.cancelled():
            return
        events = waiting.result()
        if self._spool is not None:
            await self._keep(self._spool, events)
        else:
            await self._settle(events)
            await self._connection.confirm(events)
            self._settled.clear()
        self._failures = 0

    async def _settle(self, events: Sequence[Event]) -> None:
        try:
            await self._settler.settle_all(events, self._settled)
        except Exception as error:
            raise NotSettled(error) from error

    async def _keep(self, spool: Spool, events: Sequence[Event]) -> None:
        """On disk, and confirmed; in memory alone where the disk does not take them."""
        if not events:
            return
        try:
            await spool.keep(events)
        except Exception as error:
            survived("spool", "events wait in memory only: a crash would lose them", error, path=str(spool.path))
        await self._connection.confirm(events)

    async def _settle_spooled(self, spool: Spool, stopping: asyncio.Event) -> None:
        failures = 0
        while not stopping.is_set():
            waiting = asyncio.ensure_future(spool.next())
            await _first(waiting, stopping.wait())
            if waiting.cancelled():
                return
            try:
                await self._connection.prepare(waiting.result())
                await self._settler.settle_all(waiting.result(), self._settled)
                await spool.forget(len(waiting.result()))
            except Exception as error:
                failures += 1
                await _first(stopping.wait(), asyncio.sleep(self._not_settled(error, failures)))
            else:
                self._settled.clear()
                failures = 0

    async def _adopt_spooled(self, spool: Spool, stopping: asyncio.Event) -> None:
        """Another process of this machine may end at any time."""
        while not stopping.is_set():
            await self._adopt(spool)
            await _first(stopping.wait(), asyncio.sleep(self._pipe.settings.heartbeat.total_seconds()))

    async def _adopt(self, spool: Spool) -> None:
        try:
            await spool.adopt()
        except Exception as error:
            survived("spool", "events of processes that ended are not taken over yet", error, path=str(spool.path))

    def _connected(self) -> None:
        if not self._is_listening and not self._connection.is_late:
            log.get().info("listening", platform=self._connection.name)
        self._is_listening = True

    def _not_connected(self, error: Exception, seconds: float) -> float:
        self._is_listening = False
        log.get().warning(f"not connected, trying again in {seconds:.1f} s", host=self._host, **self._about(error))
        return seconds

    def _not_settled(self, error: Exception, failures: int) -> float:
        log.get().warning("not settled, it will come again", **self._about(error))
        return backoff(self._pipe.settings, failures).total_seconds()

    def _about(self, error: Exception) -> dict[str, Any]:
        """What a line of the log says about an error; with its stack trace where we did not expect one."""
        about: dict[str, Any] = {"platform": self._connection.name}
        if isinstance(error, RateLimited) and isinstance(error.__cause__, PipelineError):
            error = error.__cause__  # why we are to wait
        if isinstance(error, PipelineError):
            return {**about, "reason": str(error) or type(error).__name__}
        if isinstance(error, redis.RedisError):
            return {**about, "reason": f"{type(error).__name__}: {error}"}
        return {**about, "reason": type(error).__name__, "exc_info": error}


def hosts_of(block: PlatformSettings) -> set[str]:
    """Where a platform answers, without paths: they may hold a key."""
    return {URL(address).host_port_subcomponent or "" for address in block.addresses.values()}


def listen(config: Settings, platform: str) -> None:
    """Listen until SIGTERM or SIGINT; what was being settled is settled first."""
    if platform not in LISTENING:
        raise ConfigurationError(f"nothing to listen to on {platform}: choose from {', '.join(LISTENING)}")
    block = config.platform(platform)
    if block is None or not block.on:
        needed = f": set {block.needed}" if block is not None else ""
        raise ConfigurationError(f"listen {platform}: {platform} is off{needed}")
    log.setup_for(config, f"listen {platform}")
    share_with_threads()
    uvloop.run(_listen(config, platform))


async def _listen(config: Settings, platform: str) -> None:
    stopping, over = asyncio.Event(), asyncio.Event()  # for good; with these settings

    def stop() -> None:
        stopping.set()
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with open_probe(config, "listener"), open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        producer = RunningProducer(pipe, f"listen {platform}", lambda _: over.set())
        async with open_tracing(pipe, f"listen {platform}"), producer.listening(stop):
            log.get().info("started", platform=platform)
            while not stopping.is_set():
                over.clear()
                try:
                    await listen_on(producer.pipe, platform, over)
                except ConfigurationError as error:
                    # With reloaded settings, this process must not end: others run beside it in `up`.
                    if producer.pipe is pipe:
                        raise
                    log.get().error("not listening until settings are reloaded", platform=platform, error=str(error))
                await over.wait()  # a platform that is off by now may be on again later
            log.get().info("stopped", platform=platform)


async def listen_on(pipe: Pipeline, platform: str, stopping: asyncio.Event) -> None:
    """Listen for every account of a platform, side by side, until `stopping` is set; not at all where it is off."""
    block = pipe.settings.platform(platform)
    if block is None or not block.on:
        return
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

"""A worker process: one RQ worker per Redis server, all in one event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any
from uuid import uuid4

import uvloop

from shared import keys, log, settings
from shared.background import end_tasks
from shared.codec import Serializer
from shared.interpreter import share_with_threads
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.own_modules import allow_working_directory
from shared.pipeline import Pipeline, open_pipeline
from shared.probe import open_probe
from shared.redis_servers import CALL_TIMEOUT_SECONDS, RedisServer
from shared.settings import Settings
from shared.store.database.schema import require_schema
from shared.tracing import open_tracing
from workers.agents.contract import Agent
from workers.agents.reading import left_behind
from workers.agents.resolve import resolve
from workers.process.parts import open_parts
from workers.process.room import Room
from workers.process.rq_worker import KeyturnWorker
from workers.process.stalls import tell_of_stalls

LANES = (TURNS, DELIVERIES, CONTROL)
# Objects of running turns are looked through for garbage once while they are new, and again after 100,000 more. With Python's
# own figures (700, 10, 10) that took a seventh of the CPU of 1,000 streamed answers at once.
GC_THRESHOLDS = (20_000, 5, 10)
CONTROL_AT_ONCE = 16  # /stop must get through when turns and deliveries fill their rooms


def work(config: Settings, lanes: Sequence[str] = LANES) -> None:
    """Run turns and deliveries until SIGTERM or SIGINT, then drain."""
    log.setup_for(config, "work")
    share_with_threads()
    # What an agent prints stands between the log lines: `up` has no standard output for it.
    with redirect_stdout(sys.stderr):
        uvloop.run(_work(config, lanes))


def work_queues(worker: KeyturnWorker) -> None:
    """Serve a worker that RQ's command line made: its queues only."""
    config = settings.load()
    log.setup_for(config, "work")
    share_with_threads()
    allow_working_directory()

    async def main() -> None:
        async with open_pipeline(config) as pipe:
            await require_schema(pipe.store.database)
            async with open_parts(pipe, resolve(config.agent, config), worker.name) as parts:
                partition = keys.partition_of_queue(worker.queues[0].name)
                server = pipe.servers.of_partition(partition)
                await worker.run(parts, server, open_rooms(config), stop_on_signals())
        _end_without_agents_that_go_on()

    uvloop.run(main())


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. A second SIGINT ends the process as if it were killed: its turns run again."""
    stopping = asyncio.Event()

    def interrupted() -> None:
        if stopping.is_set():
            os._exit(128 + signal.SIGINT)
        log.get().info("stopping: running turns may end; Ctrl-C again stops now")
        stopping.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted)
    return stopping


def open_rooms(config: Settings) -> dict[str, Room]:
    """How much of each lane one process runs at once. A reply never waits for a turn to end."""
    return {
        TURNS: Room(config.concurrency),
        DELIVERIES: Room(config.delivery_concurrency),
        CONTROL: Room(CONTROL_AT_ONCE),
    }


async def _work(config: Settings, lanes: Sequence[str]) -> None:
    name = keys.worker_name_prefix(os.getpid()) + uuid4().hex[:6]
    stopping = stop_on_signals()
    agent = resolve(config.agent, config)  # a wrong one is said first, whatever else is away
    async with open_probe(config, "worker"), open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        async with open_tracing(pipe, "work"):
            await _serve(pipe, agent, lanes, name, stopping)
    _end_without_agents_that_go_on()


def _end_without_agents_that_go_on() -> None:
    """End this process where closing its event loop would wait for ever: for agents that go on when they are cancelled."""
    if count := left_behind():
        log.get().warning("ended without agents that go on", agents=count)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


async def _serve(pipe: Pipeline, agent: Agent, lanes: Sequence[str], name: str, stopping: asyncio.Event) -> None:
    config = pipe.settings
    async with open_parts(pipe, agent, name) as parts:
        rooms = open_rooms(config)
        workers = [(_worker(pipe, server, lanes, name), server) for server in pipe.servers.all]
        log.get().info("working", worker=name, concurrency=config.concurrency)
        gc.set_threshold(*GC_THRESHOLDS)
        gc.freeze()  # what is there now stays: looking through all of it again and again would stop every turn for a while
        stalls = asyncio.create_task(tell_of_stalls())
        try:
            await asyncio.gather(*(worker.run(parts, server, rooms, stopping, lanes) for worker, server in workers))
        finally:
            await end_tasks(stalls)
        log.get().info("stopped", worker=name)


def _worker(pipe: Pipeline, server: RedisServer, lanes: Sequence[str], name: str) -> KeyturnWorker:
    queues = [keys.queue_name(lane, p) for lane in lanes for p in pipe.servers.partitions_of(server)]
    limits: dict[str, Any] = {"socket_connect_timeout": 2, "socket_timeout": CALL_TIMEOUT_SECONDS}
    connection = server.blocking_client(**limits)
    worker = KeyturnWorker(queues, name=name, connection=connection, serializer=Serializer, prepare_for_work=False)
    worker.hostname, worker.pid = socket.gethostname(), os.getpid()  # RQ would ask Redis, which may be away just now
    return worker

"""A worker process: one RQ worker per Redis server, all in one event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from uuid import uuid4

import redis
import uvloop

from shared import keys, log, settings
from shared.codec import Serializer
from shared.pipeline import CONTROL, DELIVERIES, TURNS, Pipeline, open_pipeline
from shared.redaction import open_redaction
from shared.redis_servers import Server
from shared.settings import Settings
from workers.agent import resolve
from workers.crew import open_crew
from workers.rq_worker import KeyturnWorker

LANES = (TURNS, DELIVERIES, CONTROL)


def work(config: Settings, lanes: Sequence[str] = LANES) -> None:
    """Run turns and deliveries until SIGTERM or SIGINT, then drain."""
    log.setup(config.log_level, "work", config.secret_values(), open_redaction(config))
    uvloop.run(_work(config, lanes))


def work_queues(worker: KeyturnWorker) -> None:
    """Serve a worker that RQ's command line made: its queues only."""
    config = settings.load()
    log.setup(config.log_level, "work", config.secret_values(), open_redaction(config))
    sys.path.insert(0, os.getcwd())

    async def main() -> None:
        async with open_pipeline(config) as pipe, open_crew(pipe, resolve(config.agent, config), worker.name) as crew:
            partition = int(worker.queues[0].name.rpartition("-")[2])
            server = pipe.servers.of_partition(partition)
            await worker.run(crew, server, asyncio.Semaphore(_slots(config, len(worker.queues))), stop_on_signals())

    uvloop.run(main())


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


async def _work(config: Settings, lanes: Sequence[str]) -> None:
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
    stopping = stop_on_signals()
    async with open_pipeline(config) as pipe, open_crew(pipe, resolve(config.agent, config), name) as crew:
        slots = asyncio.Semaphore(_slots(config, len({*lanes} - {CONTROL}) * config.partitions))
        workers = [(_worker(pipe, server, lanes, name), server) for server in pipe.servers.all]
        log.get().info("working", worker=name, concurrency=config.concurrency)
        gc.freeze()  # what is there now stays: looking through all of it again and again would stop every turn for a while
        await asyncio.gather(
            *(worker.run(crew, server, slots, stopping) for worker, server in workers if worker.queues)
        )
        log.get().info("stopped", worker=name)


def _slots(config: Settings, fetchers: int) -> int:
    return config.concurrency + fetchers  # a fetcher that waits holds a slot


def _worker(pipe: Pipeline, server: Server, lanes: Sequence[str], name: str) -> KeyturnWorker:
    queues = [keys.queue_name(lane, p) for lane in lanes for p in pipe.servers.partitions_of(server)]
    connection = redis.Redis.from_url(server.url, socket_connect_timeout=2)
    worker = KeyturnWorker(queues, name=name, connection=connection, serializer=Serializer, prepare_for_work=False)
    worker.hostname, worker.pid = socket.gethostname(), os.getpid()  # RQ would ask Redis, which may be away just now
    return worker

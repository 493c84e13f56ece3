"""A receiver process: the HTTP surface."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
import uvloop

from producers.reloading import RunningProducer
from producers.server.app import build_app, mount
from producers.server.bind import bind
from producers.server.connection import HttpConnection, Resting
from shared import log
from shared.interpreter import share_with_threads
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.store.database.schema import require_schema
from shared.tracing import open_tracing

PROCESS = "receive"  # as the log calls it
DRAIN_SECONDS = 10


def receive(config: Settings, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; calls `ready` with the URL once requests are answered."""
    log.setup_for(config, PROCESS)
    share_with_threads()
    listening = bind(host, port)
    uvloop.run(_serve(config, listening, ready))


class _Server(uvicorn.Server):
    """Ends by itself and with exit code 0, instead of by raising the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self, stopping: asyncio.Event) -> None:
        stopping.set()  # readers that follow a session would stay for ever
        self.force_exit = self.should_exit  # told twice: now
        self.should_exit = True


def server_config(app: Any, config: Settings) -> uvicorn.Config:
    """How the app is served: connections of ours, no websockets, and addresses as the proxies that we trust give them."""
    http: Any = partial(HttpConnection, Resting())
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
    )


async def _serve(config: Settings, listening: socket.socket, ready: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    async with open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        app = build_app(pipe)
        server = _Server(server_config(app, config))
        stop = partial(server.stop, app.state.stopping)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        producer = RunningProducer(pipe, PROCESS, partial(mount, app))
        async with open_tracing(pipe, PROCESS), producer.listening(stop):
            gc.freeze()  # what is there now stays: looking through all of it again and again would hold up requests
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
            await server.serve(sockets=[listening])

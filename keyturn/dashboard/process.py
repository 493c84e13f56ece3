"""The dashboard process: serves the pages and samples the deployment for the charts."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop

from keyturn.dashboard.app import build_app
from keyturn.dashboard.guard import Guarded
from producers.server.bind import bind
from shared import log
from shared.background import end_tasks
from shared.pipeline import open_pipeline
from shared.probe import open_probe
from shared.settings import Settings
from shared.store.database.schema import require_schema

DRAIN_SECONDS = 3
EVERYWHERE = ("0.0.0.0", "::")  # addresses to listen on, and no names to ask for


def serve(config: Settings, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; calls `ready` with the URL once requests are answered."""
    log.setup_for(config, "dashboard")
    uvloop.run(_serve(config, bind(host, port), ready))


class _DashboardServer(uvicorn.Server):
    """Ends by itself and with exit code 0, instead of by raising the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self, stopping: asyncio.Event) -> None:
        stopping.set()  # pages that follow the overview would stay for ever
        self.force_exit = self.should_exit  # told twice: now
        self.should_exit = True


async def _serve(config: Settings, listening: socket.socket, ready: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    async with open_probe(config, "dashboard"), open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        app = build_app(pipe, () if host in EVERYWHERE else (host,))
        server = _DashboardServer(server_config(app, config))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop, app.state.stopping)
        sampling = asyncio.create_task(app.state.desk.watch.sample())
        try:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
            await server.serve(sockets=[listening])
        finally:
            await end_tasks(sampling)
            await app.state.desk.forgettings.end()


def server_config(app: Guarded, config: Settings) -> uvicorn.Config:
    """How the app is served: no websockets, and the scheme as the proxies that we trust give it."""
    asgi: Any = app
    return uvicorn.Config(
        asgi,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        forwarded_allow_ips=list(config.trusted_proxies),
    )

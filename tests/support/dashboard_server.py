"""The dashboard behind a real server and a real socket, for streams and browsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from keyturn.dashboard.app import build_app
from keyturn.dashboard.guard import Guarded
from keyturn.dashboard.process import server_config
from producers.server.bind import bind
from shared.pipeline import Pipeline


@asynccontextmanager
async def serving(pipe: Pipeline, app: Guarded | None = None) -> AsyncIterator[str]:
    """The URL of a dashboard that answers."""
    listening = bind("127.0.0.1", 0)
    app = app or build_app(pipe)
    server = uvicorn.Server(server_config(app, pipe.settings))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        app.state.stopping.set()
        server.should_exit = server.force_exit = True
        await running
        listening.close()

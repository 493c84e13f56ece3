"""A listener process: holds the connection to one platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import uvloop

from producers.telegram.listen import open_listener as open_telegram
from shared import log
from shared.errors import ConfigurationError
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from shared.store.database.schema import require_schema


class Listener(Protocol):
    async def run(self, stopping: asyncio.Event) -> None:
        """Hold the connection until `stopping` is set, and only while no other process does."""


LISTENERS: Mapping[str, Callable[[Pipeline], AbstractAsyncContextManager[Listener]]] = {"telegram": open_telegram}


def listen(config: Settings, platform: str) -> None:
    """Listen until SIGTERM or SIGINT; what was being taken in is taken in first."""
    if platform not in LISTENERS:
        raise ConfigurationError(f"nothing to listen to on {platform}: choose from {', '.join(sorted(LISTENERS))}")
    log.setup_for(config, f"listen {platform}")
    uvloop.run(_listen(config, platform))


async def _listen(config: Settings, platform: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with open_pipeline(config) as pipe:
        await require_schema(pipe.store.database)
        async with LISTENERS[platform](pipe) as listener:
            log.get().info("listening", platform=platform)
            await listener.run(stopping)
            log.get().info("stopped", platform=platform)

"""Delivery: one Sender per platform, opened where the settings allow it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module

from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.schedules.schedule import OUTLET
from workers.delivery.schedule import ScheduleSender
from workers.delivery.sender import Sender

OpenSender = Callable[[Pipeline], AbstractAsyncContextManager[Sender | None]]


@asynccontextmanager
async def open_senders(pipe: Pipeline) -> AsyncIterator[Mapping[str, Sender]]:
    """The senders that the settings allow, by platform: `open_sender` of each `workers/delivery/<name>.py`. Beside them the one
    that passes the answers of scheduled turns on."""
    senders: dict[str, Sender] = {}
    async with AsyncExitStack() as stack:
        for name in PLATFORMS:
            open_sender: OpenSender = import_module(f"workers.delivery.{name}").open_sender
            if (sender := await stack.enter_async_context(open_sender(pipe))) is not None:
                senders[name] = sender
        senders[OUTLET] = ScheduleSender(pipe)
        yield senders

"""Delivery: one Sender per platform, opened where the settings allow it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module

from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.schedules.schedule import OUTLET as SCHEDULES
from shared.synthetic import OUTLET as SYNTHETIC
from shared.tasks.task import OUTLET as TASKS
from workers.delivery.schedule import ScheduleSender
from workers.delivery.sender import Sender
from workers.delivery.synthetic import SyntheticSender
from workers.delivery.task import TaskSender

OpenSender = Callable[[Pipeline], AbstractAsyncContextManager[Sender | None]]


@asynccontextmanager
async def open_senders(pipe: Pipeline) -> AsyncIterator[Mapping[str, Sender]]:
    """The senders that the settings allow, by platform: `open_sender` of each `workers/delivery/<name>.py`. Beside them those
    that pass the answers of scheduled turns and of background tasks on, and the one that ends synthetic messages."""
    senders: dict[str, Sender] = {}
    async with AsyncExitStack() as stack:
        for name in PLATFORMS:
            open_sender: OpenSender = import_module(f"workers.delivery.{name}").open_sender
            if (sender := await stack.enter_async_context(open_sender(pipe))) is not None:
                senders[name] = sender
        senders[SCHEDULES] = ScheduleSender(pipe)
        senders[TASKS] = TaskSender(pipe)
        senders[SYNTHETIC] = SyntheticSender(pipe)
        yield senders

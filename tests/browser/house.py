"""A small deployment with its dashboard, for browsers: worker, housekeeper and server in the tests' own event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from keyturn.dashboard.access import LoginFiles, Role
from keyturn.dashboard.app import build_app
from keyturn.dashboard.desk import Desk
from shared.door import Acceptance
from shared.errors import Permanent
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings
from shared.reading.dead_letters import LetterState, dead_letters
from shared.settings import Settings
from shared.store import open_store
from tests.support.dashboard_server import serving
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.agents.functions import FunctionAgent

PLATFORM = "api"
PATIENCE_SECONDS = 60.0


@dataclass
class Told:
    """An agent that answers, refuses what begins with `fail`, and waits to be let go by what begins with `wait`."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    failing: bool = True

    async def answer(self, text: str) -> str:
        if self.failing and text.startswith("fail"):
            raise Permanent(f"the agent refuses {text}")
        if text.startswith("wait"):
            await self.go.wait()
        return f"You said: {text}"


@dataclass
class House:
    """What a test can do to the deployment from behind."""

    pipe: Pipeline
    url: str
    agent: Told
    desk: Desk

    @property
    def rig(self) -> Rig:
        return Rig(self.pipe)

    def token(self, role: Role = Role.ADMIN, name: str = "ann") -> str:
        """A token that logs in once."""
        return LoginFiles(self.pipe.settings.data_dir).make_token(name, role)

    async def say(self, text: str, chat: str = "c1", **source: str) -> Acceptance:
        """A message comes in."""
        return await self.rig.accept(text, chat=chat, platform=PLATFORM, **source)

    async def ended(self, message: Acceptance) -> str:
        """The state that a message ends in."""
        found: list[str] = []

        async def has_ended() -> bool:
            row = await self.pipe.store.journal.find(message.id)
            found[:] = [row["state"]] if row is not None else ["pending"]
            return found != ["pending"]

        await until(has_ended)
        return found[0]

    async def talk(self, text: str, chat: str = "c1", **source: str) -> Acceptance:
        """A message comes in and is answered."""
        message = await self.say(text, chat, **source)
        assert await self.ended(message) == "answered"
        return message

    async def a_dead_letter(self, text: str = "fail", chat: str = "c1") -> int:
        """A message that the agent refuses for good, and its letter's number."""
        message = await self.say(text, chat)
        assert await self.ended(message) == "dead"
        return next(
            one.id for one in await dead_letters(self.pipe.store, LetterState.OPEN, 50) if one.ref == message.id
        )


def key(chat: str = "c1") -> str:
    """The conversation of a chat."""
    return key_of(chat, PLATFORM)


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@asynccontextmanager
async def open_house(redis_url: str, data_dir: Path) -> AsyncIterator[House]:
    """The deployment, at work, with nothing in it."""
    database_url = f"sqlite:///{data_dir}/store.db"
    store = await open_store(database_url, 4)
    await store.database.migrate()
    await store.database.close()
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(database_url),
        data_dir=data_dir,
        partitions=2,
        backoff_seconds=0.05,
        max_attempts=1,
        api=ApiSettings(keys=(SecretStr("test-key"),)),
    )
    agent = Told()
    async with (
        open_pipeline(settings) as pipe,
        working(pipe, FunctionAgent(agent.answer)),
        serving(pipe, app := build_app(pipe)) as url,
    ):
        try:
            yield House(pipe, url, agent, app.state.desk)
        finally:
            agent.go.set()

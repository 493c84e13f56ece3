"""Redis behind Sentinels: real ones, which name another primary while messages come in and turns run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared import metrics
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig, key_of
from tests.support.sentinels import SentinelValkeys
from tests.support.servers import Databases
from tests.support.working import working

MakeSettings = Callable[..., Settings]
PATIENCE_SECONDS = 120


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def valkeys(tmp_path: Path) -> AsyncIterator[SentinelValkeys]:
    watched = SentinelValkeys(tmp_path / "valkeys")
    try:
        await watched.open()
        yield watched
    finally:
        await watched.close()


@pytest.fixture
async def pipe(make_settings: MakeSettings, valkeys: SentinelValkeys) -> AsyncIterator[Pipeline]:
    settings = make_settings(redis_url=SecretStr(valkeys.url), sweep_seconds=0.2, lease_seconds=3)
    async with open_pipeline(settings) as opened, working(opened):
        yield opened


async def answered(rig: Rig, chats: list[str]) -> None:
    """Wait until each chat has its answers: every message once, and in order."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for chat in chats:
            while len(await rig.transcript(key_of(chat, platform="local"))) < 6:
                await asyncio.sleep(0.05)
    for chat in chats:
        said = [text for n in range(3) for text in (f"{n}", f"echo: {n}")]
        assert await rig.transcript(key_of(chat, platform="local")) == said


@pytest.mark.parametrize("change", ["fail_over", "demote"])
async def test_each_message_is_answered_once_and_in_order_while_the_sentinels_name_another_primary(
    pipe: Pipeline, valkeys: SentinelValkeys, change: str
) -> None:
    """By `fail_over` the old primary is killed, by `demote` it goes on as a replica and keeps its connections."""
    rig, chats, before = Rig(pipe), [f"c{n}" for n in range(12)], metrics.REDIS_FAILOVERS._value.get()

    async def say(text: str) -> None:
        for chat in chats:
            await rig.accept(text, chat=chat, platform="local")

    await say("0")
    changing: Any = asyncio.create_task(getattr(valkeys, change)())
    await say("1")
    await changing
    await say("2")
    await answered(rig, chats)
    assert metrics.REDIS_FAILOVERS._value.get() > before


async def test_a_sentinel_that_is_gone_or_silent_is_passed_over(
    pipe: Pipeline, valkeys: SentinelValkeys, make_settings: MakeSettings
) -> None:
    rig = Rig(pipe)
    for process in valkeys._sentinels[:2]:
        process.kill()
    async with open_pipeline(pipe.settings) as another:
        assert await another.servers.all[0].ping()
        for n in range(3):
            await Rig(another).accept(f"{n}", platform="local")
    await answered(rig, ["c1"])

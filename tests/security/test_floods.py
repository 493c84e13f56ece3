"""Floods: one chat that writes without end costs itself, not the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from shared.door import accept
from shared.errors import MailboxFull
from shared.pipeline import open_pipeline
from shared.settings import Settings
from tests.flow.told import Told, answered, until
from tests.support.pipe import Rig, an_inbound, key_of

FLOOD = 2000


@pytest.fixture
def settings(redis_url: str, database_url: str) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(database_url),
        partitions=1,
        mailbox_limit=FLOOD,
    )


@pytest.fixture
def told(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Told]:
    told = Told(tmp_path, redis_url, database_url, partitions=1)
    yield told
    told.close()


async def test_a_fresh_chat_is_answered_while_a_flood_is_far_from_drained(rig: Rig, told: Told) -> None:
    """On a worker that runs one turn at a time, with all of the flood before it in the queue."""
    for start in range(0, FLOOD, 200):
        batch = [an_inbound(f"now-flood-{n}", chat="flood") for n in range(start, start + 200)]
        await asyncio.gather(*(accept(rig.pipe, inbound) for inbound in batch))
    with pytest.raises(MailboxFull):
        await rig.accept("one too many", chat="flood")
    told.work("--concurrency", "1")
    await until(lambda: len(told.begun()) > 20, told)
    fresh = [await rig.accept("now-fresh", chat=f"fresh-{n}") for n in range(3)]
    before = len(told.begun())
    await answered(rig.pipe, [f.id for f in fresh], told)
    texts = told.texts()
    done = sum(text.startswith("now-flood") for text in texts)
    waited = [texts[before:].index("now-fresh")]
    assert done < FLOOD / 2, f"{done} of the flood went first"
    assert waited[0] <= 10 * rig.pipe.settings.turns_per_lease
    assert (await rig.pipe.store.overview.counts(10_000))["inbound_waiting"] > 0


async def test_a_full_chat_takes_nothing_more_and_every_other_does(settings: Settings) -> None:
    async with open_pipeline(settings.model_copy(update={"mailbox_limit": 3})) as pipe:
        rig = Rig(pipe)
        for n in range(3):
            await rig.accept(f"{n}", chat="full")
        for _ in range(3):
            with pytest.raises(MailboxFull):
                await rig.accept("more", chat="full")
        assert (await rig.accept("hello", chat="other")).fresh
        await rig.run_turns(key_of("full"))
        assert (await rig.accept("more", chat="full")).fresh

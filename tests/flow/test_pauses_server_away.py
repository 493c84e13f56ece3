"""One of several Redis servers is away: pauses begin and end on the others all the same, and an operator sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from keyturn.dashboard.access import Role
from shared import keys
from shared.embedded import valkey
from shared.errors import Unavailable
from shared.lane import Claim
from shared.operating.pauses import pause, resume
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.pauses import pauses_now
from shared.settings import Settings
from tests.support.dashboard import visiting
from tests.support.pipe import Rig, key_of
from workers.upkeep.pauses import KeptPauses

SCOPE = "platform:webhook"


class Two:
    """A pipeline whose keys share two servers. The first of the list can be stopped."""

    def __init__(self, pipe: Pipeline, first: valkey.Valkey) -> None:
        self.pipe, self.rig = pipe, Rig(pipe)
        self.stop_first = first.stop
        self.here = pipe.servers.all[1]
        self.chat = next(f"c{n}" for n in range(1000) if pipe.servers.of_key(key_of(f"c{n}")) is self.here)

    async def claim(self) -> Claim:
        """What a worker hears that wants the key of the healthy server."""
        await self.rig.accept("hello", chat=self.chat)
        claim, lease = await self.rig.start(self.pipe.turns, key_of(self.chat))
        if lease is not None:
            self.pipe.turns.renewal.let_go(lease)
        return claim


@pytest.fixture
async def two(make_settings: Callable[..., Settings], redis_url: str, tmp_path: Path) -> AsyncIterator[Two]:
    first = valkey.start(tmp_path / "first")
    try:
        urls = SecretStr(f"{first.url},{redis_url}")
        async with open_pipeline(make_settings(redis_url=urls, partitions=32)) as pipe:
            yield Two(pipe, first)
    finally:
        with suppress(ProcessLookupError):
            first.stop()


async def test_a_resume_wakes_the_keys_of_the_servers_that_answer(two: Two) -> None:
    await pause(two.pipe, SCOPE, by="ann")
    assert await two.claim() is Claim.PAUSED
    two.stop_first()
    resumed = await resume(two.pipe, SCOPE)
    assert resumed.woken == 1 and "housekeeper" in resumed.note
    two.pipe.turns.renewal.let_go(await two.rig.lease(key_of(two.chat)))  # which fails unless its wake waits


async def test_a_pause_is_in_force_on_the_servers_that_answer(two: Two) -> None:
    two.stop_first()
    paused = await pause(two.pipe, SCOPE, by="ann")
    assert "housekeeper" in paused.note and await two.claim() is Claim.PAUSED


async def test_a_housekeeper_does_what_it_can_and_says_that_a_server_is_away(two: Two) -> None:
    await two.pipe.store.pauses.begin(SCOPE, "ann")
    two.stop_first()
    with pytest.raises(Unavailable):
        await KeptPauses(two.pipe).look()
    assert await two.claim() is Claim.PAUSED
    await two.pipe.store.pauses.end(SCOPE)
    with pytest.raises(Unavailable):
        await KeptPauses(two.pipe).look()
    assert not await two.here.client.exists(keys.PAUSES) and not await two.here.client.zcard(keys.parked("turns"))


async def test_pauses_are_listed_with_what_waits_on_the_servers_that_answer(two: Two) -> None:
    await pause(two.pipe, SCOPE, by="ann")
    assert await two.claim() is Claim.PAUSED
    two.stop_first()
    [held] = await pauses_now(two.pipe)
    assert (held.scope, held.conversations) == (SCOPE, 1)


async def test_a_conversation_on_a_server_that_answers_has_its_page(two: Two) -> None:
    await two.rig.accept("hello", chat=two.chat)
    two.stop_first()
    await pause(two.pipe, SCOPE, by="ann")
    async with visiting(two.pipe) as visitor:
        await visitor.enter(Role.ADMIN)
        page = await visitor.page("/conversation", key=key_of(two.chat))
        assert "no worker is alive" in page.text
        assert any(tag == "section" and has.get("data-key") == SCOPE for tag, has in page.elements)

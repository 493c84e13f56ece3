"""PARTITIONS and the list of Redis servers change while keys wait, and one server of several is away: every key goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from shared import keys
from shared.embedded import valkey
from shared.failpoints import Injected
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.keys import state_of_key
from shared.redis_servers import RedisServer
from shared.settings import Settings
from tests.support.pipe import Rig, key_of
from tests.support.working import keeping, working
from workers.upkeep.housekeeping_duty import AT_ONCE

MakeSettings = Callable[..., Settings]
WAIT_SECONDS = 90
QUICK = {"lease_seconds": 3.0, "heartbeat_seconds": 1.0, "sweep_seconds": 0.2}


@pytest.fixture
def second(tmp_path: Path) -> Iterator[valkey.Valkey]:
    """A Valkey beside the one of all tests."""
    server = valkey.start(tmp_path / "second")
    yield server
    with suppress(ProcessLookupError):
        server.stop()


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.05)


def both(redis_url: str, second: valkey.Valkey) -> SecretStr:
    return SecretStr(f"{redis_url},{second.url}")


def chats_on(pipe: Pipeline, server: RedisServer, count: int) -> list[str]:
    """Chats whose keys belong to a server."""
    found = (f"c{n}" for n in range(100_000) if pipe.servers.of_key(key_of(f"c{n}")) is server)
    return [next(found) for _ in range(count)]


async def transcripts(rig: Rig, chats: list[str]) -> list[list[str]]:
    return [await rig.transcript(key_of(chat)) for chat in chats]


# -- PARTITIONS


async def test_keys_that_wait_go_on_after_the_number_of_partitions_was_lowered(
    make_settings: MakeSettings, redis_url: str
) -> None:
    chats = [f"c{n}" for n in range(40)]
    async with open_pipeline(make_settings(partitions=8, **QUICK)) as pipe:
        for chat in chats:
            await Rig(pipe).accept("before", chat=chat)
    async with open_pipeline(make_settings(partitions=4, **QUICK)) as pipe:
        rig = Rig(pipe)
        for chat in chats:
            await rig.accept("after", chat=chat)
        async with working(pipe):
            expected = [["before", "echo: before", "after", "echo: after"]] * len(chats)
            await until(lambda: _equal(transcripts(rig, chats), expected))
            with redis.Redis.from_url(redis_url) as client:
                left = [f"rq:queue:{lane}-{n}" for lane in ("turns", "deliveries") for n in range(4, 8)]
                assert not client.exists(*left)


async def test_wakes_whose_renewal_was_cut_short_are_made_anew(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")
    chats = [f"c{n}" for n in range(20)]
    async with open_pipeline(make_settings(partitions=8, **QUICK)) as pipe:
        for chat in chats:
            await Rig(pipe).accept("before", chat=chat)
    reached = cut_short(monkeypatch, "move.before_recover")
    async with open_pipeline(make_settings(partitions=4, **QUICK)) as pipe, working(pipe):
        await until(lambda: _equal(transcripts(Rig(pipe), chats), [["before", "echo: before"]] * len(chats)))
    assert reached


def cut_short(monkeypatch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Raise every second time that the point is reached, five times in all. Gives each time that it was."""
    reached: list[str] = []

    def reach(here: str) -> None:
        if here == point:
            reached.append(here)
            if len(reached) in range(1, 11, 2):
                raise Injected(here)

    monkeypatch.setattr("shared.lane.elsewhere.reach", reach)
    return reached


async def _equal(found: Any, expected: Any) -> bool:
    return bool(await found == expected)


# -- a server more


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_keys_that_wait_move_with_their_mail_when_a_server_is_added(
    make_settings: MakeSettings, redis_url: str, second: valkey.Valkey, durability: str
) -> None:
    chats = [f"c{n}" for n in range(40)]
    async with open_pipeline(make_settings(partitions=32, durability=durability, **QUICK)) as pipe:
        for text in ("1", "2"):
            for chat in chats:
                await Rig(pipe).accept(text, chat=chat)
    settings = make_settings(partitions=32, durability=durability, redis_url=both(redis_url, second), **QUICK)
    async with open_pipeline(settings) as pipe, working(pipe):
        rig = Rig(pipe)
        moved = [chat for chat in chats if pipe.servers.of_key(key_of(chat)) is pipe.servers.all[1]]
        assert 0 < len(moved) < len(chats)
        await until(lambda: _equal(transcripts(rig, chats), [["1", "echo: 1", "2", "echo: 2"]] * len(chats)))
        await until(lambda: _nothing_left(pipe.servers.all[0], moved))


@pytest.mark.parametrize("durability", ["journal", "redis"])
@pytest.mark.parametrize("point", ["move.before_put", "move.after_put"])
async def test_a_move_that_is_cut_short_in_the_midst_of_the_mail_loses_and_doubles_nothing(
    make_settings: MakeSettings,
    redis_url: str,
    second: valkey.Valkey,
    monkeypatch: pytest.MonkeyPatch,
    foreseen: Callable[[str], None],
    durability: str,
    point: str,
) -> None:
    foreseen("housekeeper")
    shape = {"partitions": 32, "durability": durability, **QUICK}
    async with open_pipeline(make_settings(redis_url=both(redis_url, second), **shape)) as after:
        rig, [before, there] = Rig(after), after.servers.all
        chats = chats_on(after, there, 5)
        async with open_pipeline(make_settings(**shape)) as alone:
            for text in ("1", "2", "3"):
                for chat in chats:
                    await Rig(alone).accept(text, chat=chat)
        reached = cut_short(monkeypatch, point)
        async with working(after):
            said = [part for n in (1, 2, 3) for part in (str(n), f"echo: {n}")]
            await until(lambda: _equal(transcripts(rig, chats), [said] * len(chats)))
            await until(lambda: _nothing_left(before, chats))
            await until(lambda: _nothing_left(there, chats))
        assert len(reached) > 1
        assert await transcripts(rig, chats) == [said] * len(chats)


async def _nothing_left(server: RedisServer, chats: list[str]) -> bool:
    names = [name for chat in chats for name in (keys.state("turns", key_of(chat)), keys.mail("turns", key_of(chat)))]
    due: Any = await server.client.zrange(keys.due("turns"), 0, -1)
    return not await server.client.exists(*names) and not set(due) & {key_of(chat).encode() for chat in chats}


async def test_a_key_that_a_worker_still_holds_is_moved_when_its_lease_has_ended(
    make_settings: MakeSettings, redis_url: str, second: valkey.Valkey
) -> None:
    async with open_pipeline(make_settings(partitions=32, redis_url=both(redis_url, second))) as after:
        [chat] = chats_on(after, after.servers.all[1], 1)
        async with open_pipeline(make_settings(partitions=32)) as before:
            rig = Rig(before)
            await rig.accept("1", chat=chat)
            lease = await rig.lease(key_of(chat))
            client: Any = before.servers.all[0].client
            async with keeping(after):
                await client.zadd(keys.due("turns"), {key_of(chat): 1})
                await until(lambda: _later_than(client, key_of(chat), 1))
                assert (await state_of_key(before.turns, key_of(chat))).state == "leased"
                assert (await state_of_key(after.turns, key_of(chat))).state == "idle"
                before.turns.renewal.let_go(lease)
                await rig.expire_lease(before.turns, key_of(chat))
                await until(lambda: _state(after, key_of(chat), "awake"))
                assert await rig.residue() == []


async def _later_than(client: Any, key: str, score: float) -> bool:
    return float(await client.zscore(keys.due("turns"), key) or 0) > score


async def _state(pipe: Pipeline, key: str, state: str) -> bool:
    return (await state_of_key(pipe.turns, key)).state == state


# -- one of several is away


async def test_a_server_that_is_away_holds_up_no_key_of_another(
    make_settings: MakeSettings, redis_url: str, second: valkey.Valkey
) -> None:
    settings = make_settings(partitions=32, redis_url=both(redis_url, second), sweep_seconds=0.2)
    async with open_pipeline(settings) as pipe:
        rig, [here, away] = Rig(pipe), pipe.servers.all
        expired, forgotten = chats_on(pipe, here, 2)
        [unreachable] = chats_on(pipe, away, 1)
        for chat in (expired, forgotten, unreachable):
            await rig.accept("hello", chat=chat)
        pipe.turns.renewal.let_go(await rig.lease(key_of(expired)))
        await here.client.delete(keys.state("turns", key_of(forgotten)), keys.mail("turns", key_of(forgotten)))
        second.stop()
        async with keeping(pipe):
            await rig.expire_lease(pipe.turns, key_of(expired))
            await until(lambda: _state(pipe, key_of(expired), "awake"))
            await until(lambda: _state(pipe, key_of(forgotten), "awake"))


async def test_what_cannot_be_moved_hides_nothing_behind_it(
    make_settings: MakeSettings, redis_url: str, second: valkey.Valkey
) -> None:
    """More keys than a page holds wait for a server that is away; a dead worker's key is due after them."""
    settings = make_settings(partitions=32, redis_url=both(redis_url, second))
    async with open_pipeline(settings) as pipe:
        rig, [here, away] = Rig(pipe), pipe.servers.all
        for chat in chats_on(pipe, away, AT_ONCE + 1):
            await here.client.zadd(keys.due("turns"), {key_of(chat): 1})
            await here.client.zadd(keys.mail("turns", key_of(chat)), {b"1": 1})
        [expired] = chats_on(pipe, here, 1)
        await rig.accept("hello", chat=expired)
        pipe.turns.renewal.let_go(await rig.lease(key_of(expired)))
        await rig.expire_lease(pipe.turns, key_of(expired))
        await here.client.zadd(keys.due("turns"), {key_of(expired): 2})
        second.stop()
        async with keeping(pipe):
            await until(lambda: _state(pipe, key_of(expired), "awake"))
        assert await here.client.zcard(keys.due("turns")) == AT_ONCE + 2

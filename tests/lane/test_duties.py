"""The housekeeper's duties one by one: in pages, past what cannot be looked at, and with the pauses between two looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared import keys
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.lane import Recovered
from shared.pipeline import open_pipeline
from shared.settings import RetentionSettings, Settings
from shared.settings.watching import SyntheticBlock
from tests.store.books import ask
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases
from workers.upkeep import due, journal, outbox, synthetic
from workers.upkeep.due import SIGN_SECONDS, DueKeys
from workers.upkeep.journal import UnknownMail
from workers.upkeep.outbox import UnknownReplies
from workers.upkeep.prune import DAY_MS, kinds
from workers.upkeep.rq_leftovers import RqLeftovers
from workers.upkeep.synthetic import SyntheticMessages

CHATS = [f"c{n}" for n in range(5)]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.mark.parametrize("bad", [set[str](), {"c0", "c3"}, {"c1", "c2", "c4"}], ids=["none", "two", "three"])
async def test_one_look_wakes_all_due_keys_past_those_that_cannot_be_looked_at(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None], bad: set[str]
) -> None:
    """A page is two keys here. Keys that fail stay due, and the next page begins behind them."""
    if bad:
        foreseen("housekeeper")
    monkeypatch.setattr(due, "AT_ONCE", 2)
    looked, recover = list[str](), rig.pipe.turns.recover

    async def choosy(key: str) -> Recovered:
        looked.append(key)
        if key in map(key_of, bad):
            raise ValueError("nobody knows")
        return await recover(key)

    for chat in CHATS:
        await rig.accept("hello", chat=chat)
        rig.pipe.turns.renewal.let_go(await rig.lease(key_of(chat)))
        await rig.expire_lease(rig.pipe.turns, key_of(chat))
    monkeypatch.setattr(rig.pipe.turns, "recover", choosy)
    server = rig.pipe.servers.of_key(key_of())
    await DueKeys(rig.pipe, server).look()
    assert sorted(looked) == [key_of(chat) for chat in CHATS]  # each once
    client: Any = server.client
    left = [key.decode() for key in await client.zrangebyscore(keys.due("turns"), 0, now_ms())]
    assert sorted(left) == sorted(map(key_of, bad))


async def test_an_outage_of_the_server_whose_keys_are_due_ends_the_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one error, and not one for each key."""
    await rig.accept("hello")
    rig.pipe.turns.renewal.let_go(await rig.lease())
    await rig.expire_lease(rig.pipe.turns, key_of())

    async def away(_: str) -> Recovered:
        raise Unavailable("away")

    monkeypatch.setattr(rig.pipe.turns, "recover", away)
    with pytest.raises(Unavailable):
        await DueKeys(rig.pipe, rig.pipe.servers.of_key(key_of())).look()


async def test_a_housekeeper_leaves_a_sign_of_life_now_and_then_that_outlives_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, server = 1000.0, rig.pipe.servers.of_key(key_of())
    monkeypatch.setattr(due, "monotonic", lambda: clock)
    duty, client = DueKeys(rig.pipe, server), server.client
    before = now_ms()
    await duty.look()
    assert before <= int(await client.get(keys.HOUSEKEEPER) or 0) <= now_ms()
    assert await client.ttl(keys.HOUSEKEEPER) > 6 * 86_400  # an alert asks how old it is
    for passed, signed in ((SIGN_SECONDS, False), (0.001, True), (SIGN_SECONDS - 1, False)):
        await client.delete(keys.HOUSEKEEPER)
        clock += passed
        await duty.look()
        assert bool(await client.exists(keys.HOUSEKEEPER)) is signed


@pytest.mark.parametrize("away", [set[str](), {"c1"}, {"c0", "c4"}], ids=["none", "one", "two"])
async def test_mail_that_redis_lost_is_found_page_by_page_and_one_key_that_cannot_be_reached_holds_up_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None], away: set[str]
) -> None:
    foreseen("housekeeper")
    monkeypatch.setattr(journal, "AT_ONCE", 2)
    monkeypatch.setattr(journal, "FILL_AT_ONCE", 1)
    for chat in CHATS:
        await rig.accept("hello", chat=chat)
    await rig.accept("/status")
    await rig.pipe.servers.all[0].client.flushall()
    put, reachable = rig.pipe.turns.put, False

    async def choosy(key: str, *args: Any, **given: Any) -> Any:
        if key in map(key_of, away) and not reachable:
            raise Unavailable("away")
        return await put(key, *args, **given)

    monkeypatch.setattr(rig.pipe.turns, "put", choosy)
    duty, every = UnknownMail(rig.pipe), [key_of(chat) for chat in CHATS]
    assert await duty.look() == duty.every_seconds
    assert not any(await rig.pipe.turns.awake(every))
    await duty.look()
    assert await rig.pipe.turns.awake(every) == [chat not in away for chat in CHATS]
    assert (await rig.pipe.control.awake([f"control:{key_of()}"])) == [True]
    reachable = True
    await duty.look()
    assert all(await rig.pipe.turns.awake(every))


async def test_a_key_that_cannot_be_filled_for_another_reason_is_heard_of(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.accept("hello")
    await rig.pipe.servers.all[0].client.flushall()

    async def broken(*_: Any) -> Any:
        raise ValueError("a row that nobody foresaw")

    monkeypatch.setattr(rig.pipe.turns, "put", broken)
    duty = UnknownMail(rig.pipe)
    await duty.look()
    with pytest.raises(ValueError, match="nobody foresaw"):
        await duty.look()


async def test_replies_that_nobody_published_are_found_page_by_page(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")
    monkeypatch.setattr(outbox, "AT_ONCE", 2)
    for chat in CHATS:
        await rig.accept("hello", chat=chat)
        await rig.run_turns(key_of(chat))
    await rig.pipe.servers.all[0].client.flushall()
    put, away = rig.pipe.deliveries.put, ["to:webhook:c1"]

    async def choosy(place: str, *args: Any, **given: Any) -> Any:
        if place in away:
            raise Unavailable("away")
        return await put(place, *args, **given)

    monkeypatch.setattr(rig.pipe.deliveries, "put", choosy)
    places = [f"to:webhook:{chat}" for chat in CHATS]
    duty = UnknownReplies(rig.pipe)
    assert await duty.look() == duty.every_seconds
    assert not any(await rig.pipe.deliveries.awake(places))
    await duty.look()
    assert await rig.pipe.deliveries.awake(places) == [True, False, True, True, True]
    away.clear()
    await duty.look()
    assert all(await rig.pipe.deliveries.awake(places))


async def test_rqs_lists_keep_workers_that_live_and_queues_that_are_not_ours_or_not_empty(rig: Rig) -> None:
    server = rig.pipe.servers.of_key(key_of())
    client: Any = server.client
    foreign = {"rq:queue:mails-1", "rq:queue:turns", "rq:queue:turns-1-2", "queue:turns-3"}
    await client.sadd("rq:queues", *foreign, "rq:queue:turns-77", "rq:queue:turns-78", "rq:queue:turns-79")
    await client.zadd("rq:finished:turns-78", {"young": now_ms() / 1000 + 3600})
    for name in ("rq:workers", "rq:workers:turns-0", "rq:workers:turns-79"):
        await client.sadd(name, "rq:worker:alive", "rq:worker:dead")
    await client.set("rq:worker:alive", 1)
    duty = RqLeftovers(rig.pipe, server)
    assert await duty.look() == duty.every_seconds
    left = {name.decode() for name in await client.smembers("rq:queues")}
    assert left == {*foreign, "rq:queue:turns-78"}
    for name in ("rq:workers", "rq:workers:turns-0", "rq:workers:turns-79"):
        assert await client.smembers(name) == {b"rq:worker:alive"}, name
    await client.delete("rq:workers")
    await duty.look()  # no worker is known


async def test_a_check_is_sent_once_for_each_time_slot_and_looked_at_again_when_the_next_begins(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pipeline(make_settings(synthetic=SyntheticBlock(seconds=60))) as pipe:
        for at_ms, left in ((600_000, 60.0), (600_001, 59.999), (659_999, 0.001), (660_000, 60.0)):
            monkeypatch.setattr(synthetic, "now_ms", lambda at_ms=at_ms: at_ms)
            for _ in range(2):  # two housekeepers
                assert await SyntheticMessages(pipe).look() == left
        sent = await ask(pipe.store, "SELECT event_id, received_at FROM inbox ORDER BY event_id")
    assert [(row["event_id"], row["received_at"]) for row in sent] == [("syn_10", 600_000), ("syn_11", 660_000)]


@pytest.mark.parametrize(("turn_days", "days_between"), [(30, 0), (40, 10), (0, None)])
async def test_a_message_names_its_turn_as_long_as_turns_are_kept(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, turn_days: int, days_between: int | None
) -> None:
    async with open_pipeline(make_settings(retention=RetentionSettings(turn_days=turn_days))) as pipe:
        asked = list[tuple[int, ...]]()

        async def remove(*given: int) -> int:
            asked.append(given)
            return 0

        monkeypatch.setattr(pipe.store.retention, "journal", remove)
        [kind] = [kind for kind in kinds(pipe) if kind.name == "journal"]
        before = 100 * DAY_MS
        await kind.remove(before, 7)
    turns_before = before - days_between * DAY_MS if days_between is not None else 0
    assert asked == [(before, 7, turns_before)]


async def test_each_kind_of_record_is_kept_as_long_as_its_setting_says(make_settings: Callable[..., Settings]) -> None:
    names = [
        "outbox",
        "journal",
        "turn",
        "dead",
        "open_dead",
        "session",
        "superseded",
        "search",
        "usage",
        "audit",
        "blob",
    ]
    settings = make_settings(retention=RetentionSettings(**{f"{name}_days": 100 + n for n, name in enumerate(names)}))
    stand_in: Any = SimpleNamespace(settings=settings, store=SimpleNamespace(retention=_Anything()))
    kept = {kind.name: kind.days for kind in kinds(stand_in)}
    assert kept == {
        "outbox": 100,
        "journal": 101,
        "turns": 102,
        "dead": 103,
        "open dead": 104,
        "sessions": 105,
        "superseded": 106,
        "search": 107,
        "usage": 108,
        "audit": 109,
        "blobs": 110,
    }


class _Anything:
    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda *_, **__: name

"""One of several Redis servers is drained while messages flow: nothing is lost, doubled or reordered, and it becomes empty."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from producers.server.app import Health
from producers.signal.position import LastEvent
from shared import draining, keys, redis_servers
from shared.agent.turn import Result, Turn
from shared.embedded import valkey
from shared.errors import Unavailable
from shared.failpoints import Injected
from shared.lane import Lane
from shared.lane.elsewhere import move
from shared.lane.leaving import LOOK_SECONDS, LOOKS_PER_SECOND, OldPlaces
from shared.lane.rq_names import workers_of_queue
from shared.lane.session_lock import JOINED, SessionLock
from shared.leader import Leader
from shared.messages import Session
from shared.news import News, tell_producers
from shared.operating.draining import drain, undrain
from shared.operating.keys import release_key, stop_key
from shared.operating.pauses import pause, resume
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.drained import servers_now
from shared.reading.gauges import GaugeCollector
from shared.reading.keys import KeyPhase, all_keys_at_work, first_mail, state_of_key
from shared.reading.overview import overview
from shared.reading.queues import all_queues
from shared.reading.trace import trace
from shared.reading.workers import all_workers
from shared.redis_servers import RedisServer
from shared.settings import Settings
from shared.window import Window
from tests.support.pipe import Rig, key_of
from tests.support.working import keeping, working
from workers.agents.results import answered as says

MakeSettings = Callable[..., Settings]
WAIT_SECONDS = 90
SHAPE = {"partitions": 32, "lease_seconds": 3.0, "heartbeat_seconds": 1.0, "sweep_seconds": 0.2}


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.1)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[valkey.Valkey]:
    """A Valkey beside the one of all tests."""
    server = valkey.start(tmp_path / "second")
    yield server
    with suppress(ProcessLookupError):
        server.stop()


@pytest.fixture
def two_servers(make_settings: MakeSettings, redis_url: str, second: valkey.Valkey) -> MakeSettings:
    """Settings with two Redis servers. The second is the one that tests drain."""
    urls = SecretStr(f"{redis_url},{second.url}")
    return lambda **more: make_settings(**{**SHAPE, "redis_url": urls, **more})


@contextmanager
def stopped(server: valkey.Valkey) -> Iterator[None]:
    """The server answers nothing, and its connections stay open."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.05)


def chats_on(pipe: Pipeline, server: RedisServer, count: int) -> list[str]:
    """Chats whose keys belong to a server."""
    found = (f"c{n}" for n in range(100_000) if pipe.servers.of_key(key_of(f"c{n}")) is server)
    return [next(found) for _ in range(count)]


def said(count: int) -> list[str]:
    return [part for n in range(count) for part in (str(n), f"echo: {n}")]


async def answered(rig: Rig, chats: list[str], count: int) -> bool:
    return [await rig.transcript(key_of(chat)) for chat in chats] == [said(count)] * len(chats)


async def is_drained(pipe: Pipeline, server: RedisServer) -> bool:
    return server in pipe.servers.draining


async def is_empty(server: RedisServer) -> bool:
    names = [name(lane) for lane in ("turns", "deliveries", "control") for name in (keys.due, keys.parked)]
    return not await server.client.exists(*names)


@asynccontextmanager
async def old_view(settings: Settings) -> AsyncIterator[Pipeline]:
    """A process that does not hear of anything that is drained from now on."""
    async with open_pipeline(settings) as pipe:
        pipe.servers.drain = lambda _: False  # type: ignore[method-assign, assignment]
        yield pipe


class Slow:
    """Answers like echo when it may go on. `begun` has the texts whose turns have begun."""

    def __init__(self) -> None:
        self.running, self.go_on = asyncio.Event(), asyncio.Event()
        self.begun: list[str] = []

    async def run(self, turn: Turn) -> Result:
        text = turn.mail[0].text
        self.begun.append(text)
        self.running.set()
        await self.go_on.wait()
        return says(f"echo: {text}")


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_what_waits_on_a_drained_server_is_answered_in_order_and_new_mail_goes_elsewhere(
    two_servers: MakeSettings, durability: str
) -> None:
    async with open_pipeline(two_servers(durability=durability)) as pipe:
        rig, [here, there] = Rig(pipe), pipe.servers.all
        chats = chats_on(pipe, there, 8)
        for n in range(2):
            for chat in chats:
                await rig.accept(str(n), chat=chat)
        await drain(pipe, there.name, by="ann")
        assert all(pipe.servers.of_key(key_of(chat)) is here for chat in chats)
        for chat in chats:
            await rig.accept("2", chat=chat)
        assert await here.client.exists(*(keys.mail("turns", key_of(chat)) for chat in chats)) == len(chats)
        async with working(pipe):
            await until(lambda: answered(rig, chats, 3))
            await until(lambda: is_empty(there))
        assert await answered(rig, chats, 3)


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_a_server_is_drained_while_messages_flow_and_processes_learn_of_it_one_after_the_other(
    two_servers: MakeSettings, durability: str
) -> None:
    settings = two_servers(durability=durability)
    async with open_pipeline(settings) as pipe, old_view(settings) as late:
        rig, there = Rig(pipe), pipe.servers.all[1]
        chats = chats_on(pipe, there, 10)
        async with working(pipe), working(late):
            for n in range(30):
                if n == 10:
                    await drain(pipe, there.name, by="ann")
                for chat in chats:
                    await Rig(late if 10 <= n < 20 else pipe).accept(str(n), chat=chat)
                if durability == "redis":  # two receivers at a time put in no order there
                    await until(lambda count=n + 1: answered(rig, chats, count))  # type: ignore[misc]
            await until(lambda: answered(rig, chats, 30))
            await until(lambda: is_empty(there))


async def test_a_turn_that_runs_on_a_drained_server_ends_there_before_the_next_one_of_its_key_begins(
    two_servers: MakeSettings,
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        [chat] = chats_on(pipe, there, 1)
        slow = Slow()
        async with working(pipe, slow):
            await rig.accept("0", chat=chat)
            await slow.running.wait()
            await drain(pipe, there.name, by="ann")
            await rig.accept("1", chat=chat)
            await asyncio.sleep(1.5)
            assert slow.begun == ["0"]
            assert (await state_of_key(pipe.turns, key_of(chat))).state is KeyPhase.LEASED
            slow.go_on.set()
            await until(lambda: answered(rig, [chat], 2))
        assert slow.begun == ["0", "1"]


async def test_a_key_whose_worker_died_on_a_drained_server_goes_on_at_its_new_place(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, [here, there] = Rig(pipe), pipe.servers.all
        [chat] = chats_on(pipe, there, 1)
        await rig.accept("0", chat=chat)
        pipe.turns.renewal.let_go(await rig.lease(key_of(chat)))
        await drain(pipe, there.name, by="ann")
        async with keeping(pipe):
            await until(lambda: here.client.exists(keys.state("turns", key_of(chat))))
            await until(lambda: is_empty(there))


async def test_keys_that_a_pause_holds_leave_a_drained_server_and_stay_paused(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, [here, there] = Rig(pipe), pipe.servers.all
        chats = chats_on(pipe, there, 3)
        await pause(pipe, "lane:turns", by="ann")
        async with working(pipe):
            for chat in chats:
                await rig.accept("0", chat=chat)
            await until(lambda: _count(there.client.zcard(keys.parked("turns")), 3))
            await there.client.zadd(keys.parked("turns"), {b"of others": 0, b"others": 0, b"all \xff": 0})
            await drain(pipe, there.name, by="ann")
            await until(lambda: _count(here.client.zcard(keys.parked("turns")), 3))
            await until(lambda: is_empty(there))
            assert not await rig.transcript(key_of(chats[0]))
            await resume(pipe, "lane:turns")
            await until(lambda: answered(rig, chats, 1))


async def _count(asked: Any, count: int) -> bool:
    return bool(await asked == count)


async def a_paused_key_leaves_and_goes_on(pipe: Pipeline) -> None:
    """A pause holds a key, its server is drained until it is empty, and the key is answered when the pause ends."""
    rig, there = Rig(pipe), pipe.servers.all[1]
    [chat] = chats_on(pipe, there, 1)
    await pause(pipe, "lane:turns", by="ann")
    async with working(pipe):
        await rig.accept("0", chat=chat)
        await until(lambda: _count(there.client.zcard(keys.parked("turns")), 1))
        await drain(pipe, there.name, by="ann")
        await until(lambda: is_empty(there))
        await resume(pipe, "lane:turns")
        await until(lambda: answered(rig, [chat], 1))


async def test_moving_a_paused_key_may_be_cut_short(
    two_servers: MakeSettings, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("housekeeper")
    reached: list[str] = []

    def cut(point: str) -> None:
        assert point == "move.before_unpark"
        reached.append(point)
        if len(reached) % 2:
            raise Injected(point)

    monkeypatch.setattr("workers.upkeep.leaving.reach", cut)
    async with open_pipeline(two_servers()) as pipe:
        await a_paused_key_leaves_and_goes_on(pipe)
    assert len(reached) > 1


async def test_a_key_that_is_parked_again_at_a_drained_server_while_it_is_moved_stays_in_nobodys_way(
    two_servers: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []

    async def move_while_another_parks(lane: Lane, server: RedisServer, key: str) -> bool:
        """A process that does not know yet that the server is drained puts the mail there again, and a worker parks it."""
        mail, state = keys.mail(lane.name, key), keys.state(lane.name, key)
        waiting: Any = await server.client.zrange(mail, 0, -1, withscores=True)
        held: Any = await server.client.hgetall(state)
        free = await move(lane, server, key)
        if not moved:
            await server.client.zadd(mail, dict(waiting))
            await server.client.hset(state, mapping=held)
        moved.append(key)
        return free

    monkeypatch.setattr("workers.upkeep.leaving.move", move_while_another_parks)
    async with open_pipeline(two_servers()) as pipe:
        await a_paused_key_leaves_and_goes_on(pipe)
    assert moved


async def test_a_dead_server_can_be_drained_and_its_journaled_messages_are_answered_elsewhere(
    two_servers: MakeSettings, second: valkey.Valkey
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        chats = chats_on(pipe, there, 5)
        for chat in chats:
            await rig.accept("0", chat=chat)
        second.stop()
        await drain(pipe, there.name, by="ann")
        async with working(pipe):
            await until(lambda: answered(rig, chats, 1))
            [_, seen] = await servers_now(pipe)
            assert "does not answer" in seen.verdict
            assert (await Health(pipe).ready(Request({"type": "http"}))).status_code == 200
            assert (await overview(pipe)).redis_away == 0
            assert b'keyturn_dependency_up{name="redis-2"}' not in await GaugeCollector(pipe).render()


@pytest.mark.parametrize("listed", [None, "due", "parked"])
async def test_garbage_on_a_drained_server_keeps_no_key_there_and_holds_up_no_message(
    two_servers: MakeSettings, listed: str | None
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        chats = chats_on(pipe, there, 2)
        key, other = map(key_of, chats)
        await there.client.set(keys.state("turns", key), "no hash")
        if listed == "due":
            await there.client.zadd(keys.due("turns"), {key: 0})
        if listed == "parked":  # before another one
            await there.client.zadd(keys.parked("turns"), {f"all {key}": 0, f"lane:turns {other}": 0})
        await drain(pipe, there.name, by="ann")
        async with working(pipe):
            await rig.accept("0", chat=chats[0])
            await until(lambda: answered(rig, chats[:1], 1))
            await until(lambda: is_empty(there))


async def test_a_drained_server_that_is_silent_holds_up_one_message_and_not_each(
    two_servers: MakeSettings, second: valkey.Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_servers, "CALL_TIMEOUT_SECONDS", 0.5)
    async with open_pipeline(two_servers(durability="redis")) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        chats = chats_on(pipe, there, 20)
        await drain(pipe, there.name, by="ann")
        with stopped(second):
            async with asyncio.timeout(5):
                for chat in chats:
                    await rig.accept("0", chat=chat)
            assert there.is_silent


async def test_what_operators_read_does_not_need_a_drained_server_that_is_dead(
    two_servers: MakeSettings, second: valkey.Valkey
) -> None:
    async with open_pipeline(two_servers(durability="redis")) as pipe:
        rig, [here, there] = Rig(pipe), pipe.servers.all
        [chat] = chats_on(pipe, here, 1)
        await rig.accept("0", chat=chat)
        second.stop()
        with pytest.raises(Unavailable):
            await all_queues(pipe)
        await drain(pipe, there.name, by="ann")
        assert sum(queue.waiting for queue in await all_queues(pipe)) == 1
        assert [state.key for state in await all_keys_at_work(pipe, 10)] == [key_of(chat)]
        assert await all_workers(pipe.servers) == []
        assert await trace(pipe, "in_nobody") is None


def test_looks_at_the_old_places_of_very_many_keys_are_spread() -> None:
    places = OldPlaces()
    seconds = [places.put_off().total_seconds() for _ in range(LOOKS_PER_SECOND * 4)]
    assert seconds[0] == pytest.approx(LOOK_SECONDS, abs=0.05) and seconds[-1] > 4


async def test_a_server_that_is_taken_out_of_the_list_before_it_is_empty_costs_no_journaled_message(
    two_servers: MakeSettings, make_settings: MakeSettings
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        chats = chats_on(pipe, pipe.servers.all[1], 5)
        for chat in chats:
            await Rig(pipe).accept("0", chat=chat)
    async with open_pipeline(make_settings(**SHAPE)) as alone, working(alone):
        await until(lambda: answered(Rig(alone), chats, 1))


async def test_taking_an_empty_drained_server_out_of_the_list_moves_no_partition(
    two_servers: MakeSettings, make_settings: MakeSettings, redis_url: str, second: valkey.Valkey, tmp_path: Path
) -> None:
    third = valkey.start(tmp_path / "third")
    try:
        three = SecretStr(f"{redis_url},{second.url},{third.url}")
        async with open_pipeline(two_servers(redis_url=three)) as pipe:
            await drain(pipe, pipe.servers.all[1].name, by="ann")
            before = [pipe.servers.of_partition(p).url for p in range(32)]
        async with open_pipeline(two_servers(redis_url=SecretStr(f"{redis_url},{third.url}"))) as pipe:
            assert [pipe.servers.of_partition(p).url for p in range(32)] == before
    finally:
        third.stop()


async def test_rqs_readers_find_the_queues_that_a_worker_serves_since_another_server_is_drained(
    two_servers: MakeSettings,
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        here, there = pipe.servers.all
        queues = [keys.queue_name("turns", partition) for partition in pipe.servers.partitions_of(there)]
        async with working(pipe):
            await until(lambda: here.client.scard("rq:workers"))
            [worker] = map(text_of, await here.client.smembers("rq:workers"))
            assert not await here.client.exists(*map(workers_of_queue, queues))
            await drain(pipe, there.name, by="ann")
            await until(lambda: here.client.sismember(workers_of_queue(queues[-1]), worker))
            assert await here.client.exists(*map(workers_of_queue, queues)) == len(queues)
            await until(lambda: serves(here, worker, queues))


def text_of(held: bytes | str | None) -> str:
    return held.decode() if isinstance(held, bytes) else held or ""


async def serves(server: RedisServer, worker: str, queues: list[str]) -> bool:
    return set(queues) <= set(text_of(await server.client.hget(worker, "queues")).split(","))


async def test_a_server_that_is_drained_no_longer_gets_its_keys_back(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        chats = chats_on(pipe, there, 8)
        async with working(pipe):
            for n in range(9):
                if n == 3:
                    await drain(pipe, there.name, by="ann")
                if n == 6:
                    await undrain(pipe, there.name)
                    assert all(pipe.servers.of_key(key_of(chat)) is there for chat in chats)
                for chat in chats:
                    await rig.accept(str(n), chat=chat)
            await until(lambda: answered(rig, chats, 9))


async def test_stop_release_and_a_look_reach_a_key_that_is_still_on_a_drained_server(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers()) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        stopped, released = chats_on(pipe, there, 2)
        for chat in (stopped, released):
            await rig.accept("0", chat=chat)
            await rig.lease(key_of(chat))
        await drain(pipe, there.name, by="ann")
        await rig.accept("1", chat=stopped)
        state = await state_of_key(pipe.turns, key_of(stopped))
        assert (state.state, state.waiting) == (KeyPhase.LEASED, 2)
        assert [mail.seq for mail in await first_mail(pipe.turns, key_of(stopped), 10)] == [1, 2]
        outcome = await stop_key(pipe, key_of(stopped))
        assert (outcome.was_running, outcome.messages) == (True, 2)
        assert (await release_key(pipe, key_of(released))).was is KeyPhase.LEASED


async def test_a_message_that_a_drained_server_remembers_is_not_taken_again(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers(durability="redis")) as pipe:
        rig, there = Rig(pipe), pipe.servers.all[1]
        [chat] = chats_on(pipe, there, 1)
        await rig.accept("0", chat=chat, event_id="same")
        await drain(pipe, there.name, by="ann")
        await rig.accept("0", chat=chat, event_id="same")
        assert len(await first_mail(pipe.turns, key_of(chat), 10)) == 1


async def test_one_process_leads_while_the_lead_leaves_a_drained_server(two_servers: MakeSettings) -> None:
    settings = two_servers()
    async with open_pipeline(settings) as pipe, old_view(settings) as late:
        name = next(
            name for n in range(1000) if pipe.servers.of_key(name := f"kt:listener:t:{n}") is pipe.servers.all[1]
        )
        times = {"ttl": timedelta(seconds=30), "every": timedelta(seconds=0.05)}
        async with Leader(late.servers, name, **times) as first:
            await first.leads.wait()
            async with Leader(pipe.servers, name, **times) as other:
                await drain(pipe, pipe.servers.all[1].name, by="ann")
                await asyncio.sleep(0.5)
                assert first.leads.is_set() and not other.leads.is_set()
                type(late.servers).drain(late.servers, {pipe.servers.all[1].name})  # it learns of it
                await asyncio.sleep(0.5)
                assert first.leads.is_set() and not other.leads.is_set()


async def test_news_are_heard_by_whoever_does_not_know_yet_that_their_server_is_drained(
    two_servers: MakeSettings,
) -> None:
    async with open_pipeline(two_servers()) as pipe:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        joined = asyncio.Event()

        async def hear(server: RedisServer) -> None:
            async for said in server.heard(keys.NEWS, joined.set):
                heard.put_nowait(said)

        for server in pipe.servers.all:
            joined.clear()
            task = asyncio.create_task(hear(server))
            await joined.wait()
            assert await tell_producers(pipe, News.RELOAD) == 1
            assert await heard.get() == News.RELOAD.value
            task.cancel()


async def test_the_lock_of_a_shared_session_holds_while_it_leaves_a_drained_server(two_servers: MakeSettings) -> None:
    settings = two_servers()
    async with open_pipeline(settings) as pipe, old_view(settings) as late:
        there = pipe.servers.all[1]
        session_id = next(f"s{n}" for n in range(1000) if pipe.servers.of_key(f"s{n}") is there)
        first, second = chats_on(pipe, pipe.servers.all[0], 2)
        locks = []
        for view, chat, other in ((late, first, second), (pipe, second, first)):
            await Rig(view).accept("0", chat=chat)
            lease = await Rig(view).lease(key_of(chat))
            facts = {JOINED + key_of(other): "1"}
            session = Session(session_id, version=1, message_count=0, done_seq=0, history=Window(None, 10), facts=facts)
            locks.append((SessionLock(lease, view.store.journal, renew_seconds=3600), session))
        (held, its_session), (waiting, other_session) = locks
        await held.follow(its_session)
        await drain(pipe, there.name, by="ann")
        assert pipe.servers.of_key(session_id) is not there
        taking = asyncio.create_task(waiting.follow(other_session))
        await asyncio.sleep(0.5)
        assert not taking.done()
        await held.give_back()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await taking
        await waiting.give_back()
        assert [await server.client.exists(keys.session_lock(session_id)) for server in pipe.servers.all] == [0, 0]


async def test_a_listeners_position_is_found_at_the_server_that_it_leaves(two_servers: MakeSettings) -> None:
    async with open_pipeline(two_servers()) as pipe:
        there = pipe.servers.all[1]
        name = next(f"a{n}" for n in range(1000) if pipe.servers.of_key(keys.position("signal", f"a{n}")) is there)
        position = LastEvent(pipe, name)
        await position.save("17")
        await drain(pipe, there.name, by="ann")
        assert await position.load() == "17"
        await position.save("18")
        assert await there.client.get(keys.position("signal", name)) == b"17"
        assert await position.load() == "18"

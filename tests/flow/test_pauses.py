"""Pauses: what is paused waits, whole and in order; nothing fails meanwhile; and the end of a pause wakes all of it, whoever dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shared import failpoints, keys
from shared.errors import CannotDo
from shared.failpoints import Injected, arm
from shared.lane import Claim
from shared.lane_key import Destination
from shared.messages import Part, Receipt
from shared.operating.keys import release_key
from shared.operating.pauses import pause, resume
from shared.pauses import enforce_pauses
from shared.pipeline import Pipeline
from shared.platforms.facts import Idempotency
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.overview import overview
from shared.reading.pauses import pauses_now
from shared.reading.status import status_of
from shared.redis_servers import RedisServer
from shared.session_key import SessionKey
from tests.store.books import ask, write
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from tests.support.working import working
from workers.delivery import deliver
from workers.upkeep.pauses import KeptPauses

KEY = key_of()
CHAT = str(Destination("webhook", "", "c1"))
PATIENCE_SECONDS = 90.0


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def answers(pipe: Pipeline, chat: str = "c1") -> list[str]:
    return await Rig(pipe).transcript(key_of(chat))


@pytest.mark.parametrize("scope", ["all", "lane:turns", "platform:webhook", CHAT, KEY])
async def test_what_is_paused_waits_in_order_and_is_answered_when_it_is_resumed(rig: Rig, scope: str) -> None:
    await pause(rig.pipe, scope, by="ann")
    for text in ("one", "two"):
        await rig.accept(text)
    assert await rig.start(rig.pipe.turns, KEY) == (Claim.PAUSED, None)
    [held] = await pauses_now(rig.pipe)
    assert (held.scope, held.who, held.conversations) == (scope, "ann", 1)
    assert held.waiting == "1 conversation"
    resumed = await resume(rig.pipe, scope)
    assert (resumed.scope, resumed.woken) == (scope, 1)
    await rig.run_turns()
    assert await rig.transcript() == ["one", "echo: one", "two", "echo: two"]
    assert await pauses_now(rig.pipe) == () and [
        name for name in await rig.residue() if ":deliveries:" not in name
    ] == [keys.PAUSES_VERSION]


async def test_a_paused_chat_keeps_its_replies_and_others_get_theirs(pipe: Pipeline) -> None:
    await pause(pipe, "lane:deliveries", by="ann")
    async with working(pipe):
        rig = Rig(pipe)
        await rig.accept("hello")
        await until(lambda: _parked(pipe, CHAT))
        [held] = await pauses_now(pipe)
        assert (held.conversations, held.destinations) == (0, 1) and await answers(pipe) == ["hello", "echo: hello"]
        assert await pipe.store.outbox.unsent(CHAT, 5)
        seen = await overview(pipe)
        assert status_of(seen, seen.at).paused == 1
        await resume(pipe, "lane:deliveries")
        await until(lambda: _sent(pipe))


async def _parked(pipe: Pipeline, key: str) -> bool:
    return (await state_of_key(pipe.lane_of(key), key)).state is KeyPhase.PAUSED


async def _sent(pipe: Pipeline) -> bool:
    return not await pipe.store.outbox.unsent(CHAT, 5)


async def test_stop_reaches_a_conversation_whose_platform_is_paused(rig: Rig) -> None:
    await pause(rig.pipe, "all", by="ann")
    await rig.accept("/stop")
    key = control_key(KEY)
    claim, _ = await rig.start(rig.pipe.control, key)
    assert claim is Claim.LEASED


async def test_a_housekeeper_neither_wakes_nor_fills_what_is_paused(pipe: Pipeline) -> None:
    await pause(pipe, KEY, by="ann")
    async with working(pipe):
        rig = Rig(pipe)
        await rig.accept("held")
        await rig.accept("free", chat="c2")
        await until(lambda: _answered(pipe, "c2"))
        await until(lambda: _parked(pipe, KEY))
        for _ in range(3):  # as its sweeps would
            await enforce_pauses(pipe)
        assert await answers(pipe) == [] and await _parked(pipe, KEY)
        await resume(pipe, KEY)
        await until(lambda: _answered(pipe, "c1"))


async def _answered(pipe: Pipeline, chat: str) -> bool:
    return len(await answers(pipe, chat)) == 2


@pytest.mark.parametrize("point", ["pause.before_hold", "pause.before_wake"])
async def test_a_housekeeper_ends_a_resume_that_was_cut_short(
    rig: Rig, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pause(rig.pipe, "all", by="ann")
    await rig.accept("hello")
    await rig.start(rig.pipe.turns, KEY)
    points = tmp_path / "points"
    arm_at = "shared.pauses.reach" if point == "pause.before_hold" else "shared.lane.pausing.reach"
    points.mkdir()
    arm(points, point, failpoints.RAISE)
    monkeypatch.setattr(arm_at, failpoints.looking(str(points)))
    with pytest.raises(Injected):
        await resume(rig.pipe, "all")
    assert await _parked(rig.pipe, KEY)
    await KeptPauses(rig.pipe).look()
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_redis_that_lost_everything_learns_of_the_pause_from_the_database(rig: Rig) -> None:
    await pause(rig.pipe, "all", by="ann")
    await rig.accept("hello")
    for server in rig.pipe.servers.all:
        await server.client.flushall()
    await KeptPauses(rig.pipe).look()
    await rig.pipe.turns.put(KEY, 1, b"{}")
    assert (await rig.start(rig.pipe.turns, KEY))[0] is Claim.PAUSED


@pytest.mark.parametrize("restored", ["before any pause", "to another pause"])
async def test_after_the_database_was_restored_its_pauses_are_in_force_and_no_others(rig: Rig, restored: str) -> None:
    other = key_of("c2")
    if restored == "to another pause":
        await pause(rig.pipe, other, by="ann")
    [before] = await ask(rig.pipe.store, "SELECT version FROM pause_version")
    await pause(rig.pipe, KEY, by="ann")
    await pause(rig.pipe, "platform:slack", by="ann")
    await rig.accept("hello")
    assert (await rig.start(rig.pipe.turns, KEY))[0] is Claim.PAUSED
    await write(rig.pipe.store, "DELETE FROM pause WHERE scope <> :other", other=other)
    await write(rig.pipe.store, "UPDATE pause_version SET version = :version", version=before["version"])
    await KeptPauses(rig.pipe).look()
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
    await rig.accept("hello", chat="c2")
    claim, _ = await rig.start(rig.pipe.turns, other)
    assert claim is (Claim.PAUSED if restored == "to another pause" else Claim.LEASED)


async def test_a_pause_is_counted_apart_from_what_waits_for_a_worker(rig: Rig) -> None:
    await pause(rig.pipe, "all", by="ann")
    await rig.accept("hello")
    assert (await overview(rig.pipe)).lane("turns").ready == 1
    await rig.start(rig.pipe.turns, KEY)
    lane = (await overview(rig.pipe)).lane("turns")
    assert (lane.ready, lane.delayed, lane.paused) == (0, 0, 1)


@pytest.mark.parametrize(
    "scope", ["", "everything", "lane:x", "platform:nowhere", "agent:main", "to:", f"control:{KEY}"]
)
async def test_what_could_never_hold_anything_cannot_be_paused(pipe: Pipeline, scope: str) -> None:
    with pytest.raises(CannotDo):
        await pause(pipe, scope, by="ann")
    assert await pauses_now(pipe) == ()


async def test_a_look_at_many_pauses_asks_redis_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        await rig.pipe.store.pauses.begin(key_of(f"c{n}"), "ann")
    asked, ask = 0, RedisServer.asked

    async def counted(server: RedisServer, what: Awaitable[object]) -> object:
        nonlocal asked
        asked += 1
        return await ask(server, what)

    monkeypatch.setattr(RedisServer, "asked", counted)
    assert len(await pauses_now(rig.pipe)) == 20 and asked == 1


async def test_who_comes_second_is_told(rig: Rig) -> None:
    await pause(rig.pipe, "all", by="ann")
    with pytest.raises(CannotDo, match="paused already"):
        await pause(rig.pipe, "all", by="bob")
    await resume(rig.pipe, "all")
    with pytest.raises(CannotDo, match="not paused"):
        await resume(rig.pipe, "all")


async def test_a_paused_key_is_resumed_and_not_released(rig: Rig) -> None:
    await pause(rig.pipe, KEY, by="ann")
    await rig.accept("hello")
    await rig.start(rig.pipe.turns, KEY)
    with pytest.raises(CannotDo, match="is paused"):
        await release_key(rig.pipe, KEY)


def test_the_chat_of_a_conversation_is_where_its_replies_go() -> None:
    from shared.pause_scope import chat_of

    source = an_inbound(chat="a:b").source
    assert chat_of(SessionKey.for_source(source)).text == "to:webhook:a%3Ab"


class PausingSender:
    """A platform during whose first send an operator pauses it."""

    idempotency = Idempotency.NONE

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self.sent: list[str] = []

    async def send(self, part: Part) -> Receipt:
        self.sent.append(part.text)
        if len(self.sent) == 1:
            await pause(self._pipe, "platform:webhook", by="ann")
        return Receipt(f"m{len(self.sent)}")


async def test_replies_that_wait_behind_the_one_being_sent_do_not_leave_after_a_pause(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "LOOK_SECONDS", -1.0)
    texts = ["one", "two", "three"]
    for text in texts:
        await rig.accept(text)
    await rig.run_turns()
    _, lease = await rig.start(rig.pipe.deliveries, CHAT, limit=deliver.AT_ONCE)
    assert lease is not None and len(lease.mail) == 3
    sender = PausingSender(rig.pipe)
    await deliver.deliver_parts(lease, deliver.Deliveries(rig.pipe, {"webhook": sender}))
    assert sender.sent == ["echo: one"] and await _parked(rig.pipe, CHAT)
    await resume(rig.pipe, "platform:webhook")
    _, lease = await rig.start(rig.pipe.deliveries, CHAT, limit=deliver.AT_ONCE)
    assert lease is not None
    await deliver.deliver_parts(lease, deliver.Deliveries(rig.pipe, {"webhook": sender}))
    assert sender.sent == [f"echo: {text}" for text in texts] and await _sent(rig.pipe)

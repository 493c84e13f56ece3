"""A rolling update: new receivers and workers write records that old workers cannot read, and leave to the new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.door import Acceptance
from shared.mail import TakeNotes, encode_mail
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.keys import KeyPhase, state_of_key
from shared.reading.mailbox import mailbox_of
from shared.settings import Settings
from tests.store.books import ask, write
from tests.support.pipe import Rig, control_key, key_of
from tests.support.stages import held
from tests.support.working import working
from workers import newer
from workers.newer import LONGEST, SHORTEST, delay_after
from workers.turn.control import find_next
from workers.turn.open import open_first
from workers.turn.outcome import Retry

SECONDS = 30
Ahead = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["journal", "redis"])
async def either(request: pytest.FixtureRequest, make_settings: Callable[..., Settings]) -> AsyncIterator[Pipeline]:
    settings = make_settings(durability=request.param, log_level="error", max_attempts=2)
    async with open_pipeline(settings) as pipe:
        yield pipe


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    """A context in which this process is one wire version ahead, as a process of the next release is."""

    @contextmanager
    def ahead() -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in ("mail.INBOUND_VERSION", "mail.TAKE_NOTES_VERSION", "part_record.PART_VERSION"):
                patch.setattr(f"shared.{name}", 2)
            yield

    return ahead


def looks(lane: str) -> float:
    return REGISTRY.get_sample_value("keyturn_newer_mail_total", {"lane": lane}) or 0.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


async def states(pipe: Pipeline, *accepted: Acceptance) -> list[str]:
    async with asyncio.timeout(SECONDS):
        while True:
            rows = [await pipe.store.journal.find(one.id) for one in accepted]
            if all(row is not None and row["state"] != "pending" for row in rows):
                return [row["state"] for row in rows if row is not None]
            await asyncio.sleep(0.01)


async def dead(pipe: Pipeline) -> list[object]:
    return list(await ask(pipe.store, "SELECT * FROM dead"))


async def test_old_workers_leave_newer_mail_to_new_ones_and_nothing_is_lost_buried_or_reordered(
    either: Pipeline, next_version: Ahead
) -> None:
    rig, texts = Rig(either), ["one", "two", "three", "four"]
    before = looks("turns")
    sent = [await rig.accept(texts[0])]
    with next_version():
        sent += [await rig.accept(text) for text in texts[1:3]]
    sent.append(await rig.accept(texts[3]))  # an old receiver is still there
    async with working(either):
        assert await states(either, sent[0]) == ["answered"]
        await until(lambda: looks("turns") >= before + 3)  # the old worker looks again and again
    assert await rig.transcript() == ["one", "echo: one"]
    assert (await state_of_key(either.turns, key_of())).attempts == 0
    with next_version():
        async with working(either):
            assert await states(either, *sent) == ["answered"] * 4
    assert [text for text in await rig.transcript() if not text.startswith("echo")] == texts
    assert await dead(either) == []
    assert [row["attempts"] for row in await ask(either.store, "SELECT attempts FROM inbox ORDER BY seq")] == [1] * 4


async def test_old_workers_leave_newer_control_messages_to_new_ones(either: Pipeline, next_version: Ahead) -> None:
    rig, before = Rig(either), looks("control")
    with next_version():
        first = await rig.accept("/status")
    second = await rig.accept("/status")
    async with working(either):
        await until(lambda: looks("control") >= before + 2)
    assert await ask(either.store, "SELECT id FROM outbox") == []
    with next_version():
        async with working(either):
            assert await states(either, first, second) == ["answered"] * 2
    turns = await ask(either.store, "SELECT turn_id FROM inbox ORDER BY seq")
    answers = await ask(either.store, "SELECT turn_id FROM outbox ORDER BY id")
    assert turns == answers and await dead(either) == []


async def test_old_workers_leave_newer_replies_to_new_ones_in_order(either: Pipeline, next_version: Ahead) -> None:
    rig, before = Rig(either), looks("deliveries")
    with next_version():
        await rig.accept("one", platform="local")
        await rig.run_turns(key_of(platform="local"))
    second = await rig.accept("two", platform="local")
    async with working(either):
        assert await states(either, second) == ["answered"]
        await until(lambda: looks("deliveries") >= before + 2)
    rows = await ask(either.store, "SELECT state, attempts - waits AS counted FROM outbox ORDER BY id")
    assert rows == [{"state": "pending", "counted": 0}] * 2
    with next_version():
        async with working(either):
            async with asyncio.timeout(SECONDS):
                while [row["state"] for row in await ask(either.store, "SELECT state FROM outbox")] != ["sent"] * 2:
                    await asyncio.sleep(0.01)
    sent = await ask(either.store, "SELECT id FROM outbox ORDER BY sent_at, id")
    assert [row["id"] for row in sent] == sorted(row["id"] for row in sent) and await dead(either) == []


@pytest.mark.parametrize("text", ["hello", "/status"])
async def test_mail_for_a_newer_worker_is_looked_at_again_after_as_long_as_it_has_waited(
    either: Pipeline, next_version: Ahead, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    rig = Rig(either)
    with next_version():
        accepted = await rig.accept(text)
    lease, row = await rig.lease(), await either.store.journal.find(accepted.id)
    came = row["received_at"] if row is not None else lease.mail[0].seq // 1000
    monkeypatch.setattr(newer, "now_ms", lambda: came + 4000)
    found = await (find_next(lease, rig.parts()) if text == "/status" else open_first(held(rig, lease)))
    assert found == Retry(timedelta(seconds=4), spent=False)


async def test_a_newer_kind_of_mail_is_left_to_new_workers(rig: Rig) -> None:
    await rig.pipe.turns.put(key_of(), 0, b'{"v":1,"reminder":{"at":1}}')
    await rig.run_turns()
    state = await state_of_key(rig.pipe.turns, key_of())
    assert (state.state, state.waiting, state.attempts) == (KeyPhase.DELAYED, 1, 0)
    assert await dead(rig.pipe) == []


async def test_mail_that_nobody_can_read_is_still_set_aside(rig: Rig) -> None:
    first = await rig.accept("hello")
    await write(rig.pipe.store, "UPDATE inbox SET payload = '{}' WHERE id = :id", id=first.id)
    await rig.pipe.servers.all[0].client.flushall()
    await rig.pipe.turns.put(key_of(), 1, b"{}")
    await rig.run_turns()
    assert await states(rig.pipe, first) == ["dead"]


async def test_newer_mail_that_has_ended_holds_up_nothing(rig: Rig, next_version: Ahead) -> None:
    with next_version():
        first = await rig.accept("one")
        row = await rig.pipe.store.journal.find(first.id)
        await rig.run_turns()
    assert row is not None
    await rig.pipe.turns.put(key_of(), row["seq"], row["payload"].encode())  # by a receiver that was slow
    await rig.run_turns()
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


def test_the_delay_doubles_with_the_wait_up_to_a_bound() -> None:
    waited, delays = timedelta(0), []
    for _ in range(8):
        delays.append(delay_after(waited))
        waited += delays[-1]
    assert delays[0] == SHORTEST and delays[-1] == LONGEST == max(delays)
    assert delays[1:4] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST]
    assert delay_after(timedelta(hours=-1)) == SHORTEST  # another process' clock is ahead


async def test_an_old_worker_says_once_in_a_while_that_it_is_too_old(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newer._Log, "next_at", 0.0)
    for chat in ("c1", "c2"):
        await rig.pipe.turns.put(key_of(chat), 0, b'{"v":1,"reminder":{"at":1}}')
    with capture_logs() as logs:
        for chat in ("c1", "c2"):
            await rig.run_turns(key_of(chat))
    assert [line["key"] for line in logs if "too old" in line["event"]] == [key_of("c1")]


async def test_stop_tells_of_messages_that_only_a_newer_worker_can_read_and_that_worker_drops_them(
    rig: Rig, next_version: Ahead
) -> None:
    with next_version():
        unread = await rig.accept("one")
    await rig.run_turns()  # delays the key
    await asyncio.sleep(0.002)  # wall clocks have milliseconds: what is said later is received later
    await rig.accept("/stop")
    _, lease = await rig.start(rig.pipe.control, control_key(key_of()))
    await rig.turns(lease or pytest.fail("not leased"))
    [answer] = await ask(rig.pipe.store, "SELECT payload FROM outbox")
    assert "1 message waits for a newer version of me" in answer["payload"]
    with next_version():
        await rig.run_turns()
    row = await rig.pipe.store.journal.find(unread.id)
    assert row is not None and (row["state"], row["reason"]) == ("superseded", "stopped")


async def test_a_key_shows_mail_of_a_newer_version_as_such(rig: Rig, next_version: Ahead) -> None:
    with next_version():
        await rig.accept("one")
        await rig.pipe.turns.put(key_of(), 0, encode_mail(TakeNotes("ses_1")))
    await rig.pipe.turns.put(key_of(), 0, b"garbage")
    shown = [entry.id.partition(":")[0] for entry in (await mailbox_of(rig.pipe, key_of())).mail]
    assert shown == ["for a newer worker", "for a newer worker", "unreadable"]


async def test_a_destination_with_a_newer_reply_is_shown_with_its_number(rig: Rig, next_version: Ahead) -> None:
    with next_version():
        await rig.accept("one")
        await rig.run_turns()
    shown = await mailbox_of(rig.pipe, "to:webhook:c1")
    [row] = await ask(rig.pipe.store, "SELECT id FROM outbox")
    assert getattr(shown.journal, "unsent", ()) == (row["id"],)

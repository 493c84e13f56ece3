"""Delivery when the platform or the database is in trouble: nothing is sent twice that a worker knows has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from shared import keys, log
from shared.address import Address
from shared.choices import Choice
from shared.door import accept
from shared.errors import Ambiguous, RateLimited, Transient, Unavailable, Undeliverable
from shared.failpoints import Injected
from shared.lane import Lease
from shared.messages import Mail, Part, Receipt, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.facts import Idempotency
from shared.settings import Settings
from shared.store.database import Step, open_database
from tests.contract.outlet import Saying
from tests.store.books import ask, write
from tests.store.test_error_classes import run_out_of_time
from tests.support.outage import PostgresOutage
from tests.support.pipe import Rig, an_inbound, key_of
from workers.delivery import deliver as delivering
from workers.delivery import failure_notice
from workers.delivery.deliver import Deliveries, deliver_parts

PLACE = "to:webhook:c1"
BUSY = RateLimited(timedelta(0))


class Scripted:
    """A platform that gives these answers one after another, then takes everything. It recognises no repetition."""

    idempotency = Idempotency.NONE

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.sent: list[str] = []

    async def send(self, part: Part) -> Receipt:
        self.sent.append(part.text)
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer
        return Receipt(f"m{len(self.sent)}")


class Keyed(Scripted):
    """The same, and it recognises a repetition by its key."""

    idempotency = Idempotency.NATIVE

    def __init__(self, *answers: Exception | None) -> None:
        super().__init__(*answers)
        self.keys: list[str] = []

    async def send(self, part: Part) -> Receipt:
        self.keys.append(part.idempotency_key)
        return await super().send(part)


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "RETRY_SECONDS", 0.01)


async def decided(rig: Rig, text: str = "hello") -> None:
    """A reply that waits to be sent."""
    await rig.accept(text)
    await rig.run_turns()


async def leased(rig: Rig, place: str = PLACE) -> Lease:
    """The destination's lease, whatever delay it was given back with."""
    await rig.expire_lease(rig.pipe.deliveries, place)
    await rig.pipe.deliveries.recover(place)
    _, lease = await rig.start(rig.pipe.deliveries, place)
    assert lease is not None
    return lease


async def deliver(rig: Rig, platform: Scripted) -> None:
    """What a worker does with the destination's wake."""
    await deliver_parts(await leased(rig), Deliveries(rig.pipe, {"webhook": platform}))


async def rows(pipe: Pipeline) -> list[tuple[Any, ...]]:
    found = await ask(pipe.store, "SELECT state, attempts, ambiguous, receipt FROM outbox ORDER BY id")
    return [tuple(row.values()) for row in found]


class Blinking:
    """A database that is away for the first calls of one statement: before they are carried out, or after it, unheard."""

    def __init__(self, pipe: Pipeline, statement: str, *, heard: bool, times: int = 2) -> None:
        self._write = pipe.store.database.write
        self._statement = statement
        self._heard = heard
        self.times = times

    async def __call__(self, *steps: Step, can_linger: bool = False) -> list[list[dict[str, Any]]]:
        blinks = self.times > 0 and steps[0].statement.name == self._statement
        self.times -= blinks
        if blinks and self._heard:
            raise Unavailable("away")
        found = await self._write(*steps, can_linger=can_linger)
        if blinks:
            raise Unavailable("away")
        return found


STEPS = {
    "outbox_take": (None, ("sent", 1, 0, "m1"), 1),
    "outbox_sent": (None, ("sent", 1, 0, "m1"), 1),
    "outbox_failed": (BUSY, ("sent", 2, 0, "m2"), 2),
    "bury_part": (Undeliverable("403"), ("buried", 1, 0, None), 1),
}


@pytest.mark.parametrize("heard", [True, False], ids=["not carried out", "carried out, unheard"])
@pytest.mark.parametrize("statement", list(STEPS))
async def test_a_database_that_blinks_at_any_step_costs_no_second_send_and_no_reply(
    rig: Rig, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, statement: str, heard: bool
) -> None:
    """Also where a reply that may have arrived is not to be sent again: then it must not be lost."""
    answer, expected, sends = STEPS[statement]
    async with open_pipeline(make_settings(resend_ambiguous=False)) as pipe:
        rig, platform = Rig(pipe), Scripted(answer)
        await decided(rig)
        blinking = Blinking(pipe, statement, heard=heard)
        monkeypatch.setattr(pipe.store.database, "write", blinking)
        await deliver(rig, platform)
        if sends == 2:
            await deliver(rig, platform)
        assert await rows(pipe) == [expected]
        assert (len(platform.sent), blinking.times) == (sends, 0)
        letters = await pipe.store.dead.all(state="open", limit=10)
        assert len(letters) == (expected[0] == "buried")
        assert await rig.residue() == []


async def begun_long_ago(rig: Rig, lease: str) -> Part:
    """An attempt at the first part that began more than a lease time ago and came to no end."""
    part = await rig.pipe.store.outbox.take(PLACE, lease)
    assert part is not None
    await write(rig.pipe.store, "UPDATE outbox SET sending_at = 1 WHERE state = 'sending'")
    return part


@pytest.mark.parametrize("heard", [True, False], ids=["not carried out", "carried out, unheard"])
@pytest.mark.parametrize("statement", ["outbox_ambiguous", "outbox_sending"])
async def test_a_database_that_blinks_while_an_interrupted_part_is_resumed_costs_one_attempt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, statement: str, heard: bool
) -> None:
    await decided(rig)
    await begun_long_ago(rig, "the lease of a worker that died")
    platform = Scripted()
    monkeypatch.setattr(rig.pipe.store.database, "write", Blinking(rig.pipe, statement, heard=heard))
    await deliver(rig, platform)
    assert await rows(rig.pipe) == [("sent", 2, 1, "m1")]
    assert len(platform.sent) == 1


async def test_who_loses_the_destination_while_the_database_is_away_waits_no_longer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await decided(rig)
    lease, platform = await leased(rig), Scripted()
    blinking = Blinking(rig.pipe, "outbox_sent", heard=True, times=10**9)
    monkeypatch.setattr(rig.pipe.store.database, "write", blinking)
    task = asyncio.create_task(deliver_parts(lease, Deliveries(rig.pipe, {"webhook": platform})))
    async with asyncio.timeout(60):
        while blinking.times > 10**9 - 3:
            await asyncio.sleep(0.005)
        lease.lose()
        with pytest.raises(Unavailable):
            await task


@pytest.fixture
def postgres() -> Iterator[PostgresOutage]:
    outage = PostgresOutage()
    yield outage
    outage.remove()


class Restarting(Scripted):
    """Takes the reply, and meanwhile the database stops; it is back only after the worker has looked for it."""

    def __init__(self, postgres: PostgresOutage) -> None:
        super().__init__()
        self._postgres = postgres
        self.back: asyncio.Task[None] | None = None

    async def send(self, part: Part) -> Receipt:
        await asyncio.to_thread(self._postgres.stop)
        self.back = asyncio.create_task(asyncio.to_thread(self._postgres.start))
        return await super().send(part)


@pytest.fixture
async def restarted(postgres: PostgresOutage, redis_url: str) -> AsyncIterator[Rig]:
    database = await open_database(postgres.url)
    await database.migrate()
    await database.close()
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(postgres.url),
        resend_ambiguous=False,
        lease_seconds=60,
    )
    async with open_pipeline(settings) as pipe:
        yield Rig(pipe)


async def test_a_reply_that_the_platform_took_while_postgresql_restarted_is_sent_once(
    restarted: Rig, postgres: PostgresOutage
) -> None:
    await decided(restarted)
    platform = Restarting(postgres)
    async with asyncio.timeout(120):
        await deliver(restarted, platform)
        assert platform.back is not None
        await platform.back
    assert (await rows(restarted.pipe), len(platform.sent)) == ([("sent", 1, 0, "m1")], 1)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_reply_whose_receipt_took_too_long_to_write_is_sent_once(rig: Rig) -> None:
    await decided(rig)
    await run_out_of_time(rig.pipe.store, "UPDATE OF receipt ON outbox", times=2)
    platform = Scripted()
    await deliver(rig, platform)
    assert (await rows(rig.pipe), platform.sent) == ([("sent", 1, 0, "m1")], ["echo: hello"])


async def test_a_platform_that_says_wait_0_s_is_asked_again_after_the_backoff(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await decided(rig)
    lease = await leased(rig)
    delays: list[timedelta] = []
    give_back = lease.release

    async def noting(*, delay: timedelta, **about: Any) -> None:
        delays.append(delay)
        await give_back(delay=delay, **about)

    monkeypatch.setattr(lease, "release", noting)
    await deliver_parts(lease, Deliveries(rig.pipe, {"webhook": Scripted(BUSY)}))
    assert len(delays) == 1
    assert delays[0] >= timedelta(seconds=0.8 * rig.pipe.settings.backoff_seconds)


BUCKET_AWAY = Unavailable("the bucket is away")


@pytest.mark.parametrize(
    ("failures", "doublings"),
    [
        ([Transient("HTTP 502")] * 3, [0, 1, 2]),
        ([Ambiguous("no answer")] * 3, [0, 1, 2]),
        ([BUSY] * 3, [0, 0, 0]),  # no failures
        ([Transient("HTTP 502"), BUSY, BUSY, Transient("HTTP 502")], [0, 1, 1, 1]),
        ([BUCKET_AWAY] * 3, [0, 1, 2]),
    ],
)
async def test_waits_grow_with_each_failure_and_those_of_many_chats_are_spread(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, failures: list[Exception], doublings: list[int]
) -> None:
    spreads, delays, give_back = list[tuple[float, float]](), list[timedelta](), Lease.release

    def middle(low: float, high: float) -> float:
        spreads.append((low, high))
        return 1.0

    async def noting(lease: Lease, *, delay: timedelta, **about: Any) -> None:
        delays.append(delay)
        await give_back(lease, delay=delay, **about)

    monkeypatch.setattr("shared.backoff.random", SimpleNamespace(uniform=middle))
    monkeypatch.setattr(Lease, "release", noting)
    await decided(rig)
    platform = Scripted(*failures)
    for _ in failures:
        await deliver(rig, platform)
    base = rig.pipe.settings.backoff_seconds
    assert delays == [timedelta(seconds=base * 2**doubling) for doubling in doublings]
    assert spreads == [(0.8, 1.2)] * len(failures)
    [row] = await ask(rig.pipe.store, "SELECT state, attempts - waits AS counted FROM outbox")
    counted = sum(failure not in (BUSY, BUCKET_AWAY) for failure in failures)
    assert (row["state"], row["counted"]) == ("pending", counted)


async def test_a_longer_wait_that_the_platform_asks_for_is_kept(rig: Rig) -> None:
    await decided(rig)
    await deliver(rig, Scripted(RateLimited(timedelta(hours=1))))
    client = rig.pipe.servers.of_key(PLACE).client
    seconds, _ = await client.time()
    until = await client.hget(keys.state(rig.pipe.deliveries.name, PLACE), "until")
    assert until is not None and int(until) / 1000 > seconds + 3000


async def test_waits_that_a_platform_asks_for_bury_no_reply(rig: Rig) -> None:
    """Twenty of them, and then as many failures as a reply may have, less one."""
    limit = rig.pipe.settings.delivery_max_attempts
    platform = Scripted(*[BUSY] * 20, *[Transient("HTTP 502")] * (limit - 1))
    await decided(rig)
    for _ in range(20 + limit):
        await deliver(rig, platform)
    assert await rows(rig.pipe) == [("sent", 20 + limit, 0, f"m{20 + limit}")]


@pytest.mark.parametrize("failure", [Transient("HTTP 502"), Ambiguous("no answer")])
async def test_a_reply_that_fails_as_often_as_it_may_is_buried(rig: Rig, failure: Exception) -> None:
    limit = rig.pipe.settings.delivery_max_attempts
    platform = Scripted(*[BUSY] * 3, *[failure] * limit)
    await decided(rig)
    for _ in range(3 + limit):
        await deliver(rig, platform)
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (letter["reason"], len(platform.sent)) == ("unreachable", 3 + limit)


@pytest.mark.parametrize("tries", [1, 3])
async def test_N90_a_send_is_tried_as_often_as_the_setting_says_and_the_last_failure_waits_for_nothing(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    waits: list[timedelta] = []
    give_back = Lease.release

    async def noting(lease: Lease, *, delay: timedelta, **about: Any) -> None:
        waits.append(delay)
        await give_back(lease, delay=delay, **about)

    monkeypatch.setattr(Lease, "release", noting)
    async with open_pipeline(make_settings(delivery_max_attempts=tries)) as pipe:
        rig, platform = Rig(pipe), Scripted(*[Transient("HTTP 502")] * 10)
        await decided(rig)
        for _ in range(tries):
            await deliver(rig, platform)
        assert (await rows(pipe), len(platform.sent), len(waits)) == ([("buried", tries, 0, None)], tries, tries - 1)


@pytest.mark.parametrize("told", [True, False])
async def test_M9_when_all_tries_fail_a_short_notice_is_tried_once_and_its_failure_changes_nothing(
    make_settings: Callable[..., Settings], told: bool
) -> None:
    failures = [Transient("HTTP 502")] * 3 + ([] if told else [Transient("HTTP 502")])
    async with open_pipeline(make_settings(delivery_max_attempts=3)) as pipe:
        rig, platform = Rig(pipe), Scripted(*failures)
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        for _ in range(3):
            lease = await leased(rig, "to:telegram:c1")
            await deliver_parts(lease, Deliveries(pipe, {"telegram": platform}))
        assert platform.sent == [*["echo: hello"] * 3, failure_notice.TEXT]
        assert await rows(pipe) == [("buried", 3, 0, None)]
        [letter] = await pipe.store.dead.all(state="open", limit=10)
        assert letter["reason"] == "unreachable" and await rig.residue() == []


async def test_M9_a_chat_where_nobody_asked_is_told_of_no_failure(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        platform = Scripted(Transient("HTTP 502"))
        rig = Rig(pipe, Saying(Reply("for another chat", to=Address("telegram", "", "42"))))
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        lease = await leased(rig, "to:telegram:42")
        await deliver_parts(lease, Deliveries(pipe, {"telegram": platform}))
        assert (await rows(pipe), platform.sent) == ([("buried", 1, 0, None)], ["for another chat"])


async def all_failing(pipe: Pipeline, rig: Rig, platform: Scripted) -> None:
    """Whatever waits for the chat is sent, each part as often as it fails."""
    lease = await leased(rig, "to:telegram:c1")
    await deliver_parts(lease, Deliveries(pipe, {"telegram": platform}))


async def test_M9_a_chat_is_told_once_of_an_answer_whose_parts_are_all_lost(
    make_settings: Callable[..., Settings],
) -> None:
    lost = Transient("HTTP 502")
    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        rig, platform = Rig(pipe, Saying(Reply("one"), Reply("two"), Reply("three"))), Scripted(lost, None, lost, lost)
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        await all_failing(pipe, rig, platform)
        assert platform.sent == ["one", failure_notice.TEXT, "two", "three"]
        assert [state for state, *_ in await rows(pipe)] == ["buried"] * 3


async def test_M9_the_notice_of_a_lost_question_has_no_buttons(make_settings: Callable[..., Settings]) -> None:
    asked = Reply("May I delete all?", choices=(Choice("Approve", f"/approve ask_{'0' * 32}_000"),))
    buttons: list[int] = []

    class Counting(Scripted):
        async def send(self, part: Part) -> Receipt:
            buttons.append(len(part.choices))
            return await super().send(part)

    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        rig, platform = Rig(pipe, Saying(asked)), Counting(Transient("HTTP 502"))
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        await all_failing(pipe, rig, platform)
        assert (platform.sent[-1], buttons) == (failure_notice.TEXT, [1, 0])


async def test_M9_the_notice_is_a_message_of_its_own_that_changes_none(make_settings: Callable[..., Settings]) -> None:
    """Also where the lost part was a change of an earlier message. It keeps the part's place: the first one of several may
    replace what stands in the chat."""
    sent: list[Part] = []

    class Noting(Scripted):
        async def send(self, part: Part) -> Receipt:
            sent.append(part)
            return await super().send(part)

    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        rig, platform = Rig(pipe, Saying(Reply("one"), Reply("two", edits="m7"))), Noting(None, Transient("HTTP 502"))
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        await all_failing(pipe, rig, platform)
    one, two, notice = sent
    assert (one.part, two.part, two.parts, two.edits) == (1, 2, 2, "m7")
    assert (notice.part, notice.parts, notice.edits, notice.draft, notice.shown) == (2, 2, None, None, 0)
    assert (notice.media, notice.to) == ((), two.to) and notice.idempotency_key not in (
        one.idempotency_key,
        two.idempotency_key,
    )


async def test_M9_a_crash_before_the_notice_costs_the_notice_and_nothing_else(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(point: str) -> None:
        assert point == "deliver.before_failure_notice"
        raise Injected(point)

    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        rig, platform = Rig(pipe, Saying(Reply("one"), Reply("two"))), Scripted(Transient("HTTP 502"))
        await rig.accept("hello", platform="telegram")
        await rig.run_turns(key_of(platform="telegram"))
        monkeypatch.setattr(failure_notice, "reach", crash)
        with pytest.raises(Injected):
            await all_failing(pipe, rig, platform)
        await pipe.deliveries.recover("to:telegram:c1")
        await all_failing(pipe, rig, platform)
        assert ([row[0] for row in await rows(pipe)], platform.sent) == (["buried", "sent"], ["one", "two"])


async def test_M9_a_lost_draft_is_no_lost_answer(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(delivery_max_attempts=1)) as pipe:
        rig, platform = Rig(pipe), Scripted(Transient("HTTP 502"))
        inbound, key = an_inbound("hello", platform="telegram"), key_of(platform="telegram")
        await accept(pipe, inbound)
        draft = await pipe.store.drafts.open(Mail(1, inbound, journaled=True), "echo: he", key)
        assert draft is not None
        await pipe.deliveries.put(draft.destination, draft.part_id, b"")
        await all_failing(pipe, rig, platform)
        await rig.run_turns(key)
        await all_failing(pipe, rig, platform)
        assert platform.sent == ["echo: he", "echo: hello"]


def test_N90_a_setting_without_any_try_is_refused(make_settings: Callable[..., Settings]) -> None:
    with pytest.raises(ValidationError, match="delivery_max_attempts"):
        make_settings(delivery_max_attempts=0)


async def test_N91_the_answer_to_a_message_is_sent_once_and_the_same_words_for_another_message_are_sent_too(
    rig: Rig,
) -> None:
    platform = Scripted()
    for _ in range(2):
        await rig.accept("hello", event_id="evt_same")
    await rig.run_turns()
    await deliver(rig, platform)
    again = await rig.accept("hello", event_id="evt_same")
    assert not again.fresh and platform.sent == ["echo: hello"]
    await decided(rig, "hello")
    await deliver(rig, platform)
    assert platform.sent == ["echo: hello"] * 2
    rig.agent = Saying(Reply("something else"))
    await decided(rig, "/retry")
    await deliver(rig, platform)
    assert platform.sent[2:] == ["something else"] and await rig.residue() == []


async def test_N93_of_a_long_reply_only_the_part_in_doubt_is_sent_again_with_the_same_key(rig: Rig) -> None:
    platform = Keyed(None, Ambiguous("no answer"))
    rig.agent = Saying(Reply("first"), Reply("second"), Reply("third"))
    await decided(rig)
    await deliver(rig, platform)
    assert platform.sent == ["first", "second"]
    await deliver(rig, platform)
    assert platform.sent == ["first", "second", "second", "third"]
    first, second, again, third = platform.keys
    assert second == again and len({first, second, third}) == 3
    assert [(state, in_doubt) for state, _, in_doubt, _ in await rows(rig.pipe)] == [
        ("sent", 0),
        ("sent", 1),
        ("sent", 0),
    ]


async def test_an_unforeseen_error_of_a_sender_is_a_failed_attempt_that_may_have_arrived(
    rig: Rig, foreseen: Callable[[str], None]
) -> None:
    foreseen("delivery")
    platform = Scripted(RecursionError("too deep"))
    await decided(rig)
    await deliver(rig, platform)
    assert await rows(rig.pipe) == [("pending", 1, 1, None)]
    await deliver(rig, platform)
    assert await rows(rig.pipe) == [("sent", 2, 1, "m2")]


async def test_a_reply_whose_sender_always_meets_an_unforeseen_error_is_buried(
    rig: Rig, foreseen: Callable[[str], None]
) -> None:
    foreseen("delivery")
    limit = rig.pipe.settings.delivery_max_attempts
    platform = Scripted(*[KeyError("x")] * limit)
    await decided(rig)
    for _ in range(limit):
        await deliver(rig, platform)
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (letter["reason"], len(platform.sent)) == ("unreachable", limit)


async def test_a_part_that_kills_its_worker_as_often_as_it_may_is_buried_and_waits_do_not_count(rig: Rig) -> None:
    limit = rig.pipe.settings.delivery_max_attempts
    await decided(rig)
    await write(
        rig.pipe.store, f"UPDATE outbox SET state = 'sending', sending_at = 1, attempts = {limit + 4}, waits = 5"
    )
    platform = Scripted(Transient("HTTP 502"))
    await deliver(rig, platform)
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (letter["reason"], len(platform.sent)) == ("unreachable", 1)  # one more was left, and it was the last


async def test_a_part_that_another_attempt_has_begun_is_waited_for_and_nothing_overtakes_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lost the destination is still sending the first part while the next holder looks at it."""
    await decided(rig, "one")
    await decided(rig, "two")
    outbox, platform = rig.pipe.store.outbox, Scripted()
    first = await begun_long_ago(rig, "a worker that was paused")
    flag = outbox.ambiguous

    async def resumed_meanwhile(part: Part) -> None:
        await flag(part)
        [seen] = await outbox.open_parts(PLACE, 1)
        assert await outbox.sending(seen, "a third worker")

    monkeypatch.setattr(outbox, "ambiguous", resumed_meanwhile)
    await deliver(rig, platform)
    assert platform.sent == []
    monkeypatch.undo()
    await outbox.sent(first, "late")
    await deliver(rig, platform)
    assert platform.sent == ["echo: two"]
    assert [row[0] for row in await rows(rig.pipe)] == ["sent", "sent"]


class Slow(Scripted):
    """A platform that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def send(self, part: Part) -> Receipt:
        self.asked.set()
        await self.answers.wait()
        return await super().send(part)


async def test_a_part_that_a_worker_is_sending_while_redis_loses_its_data_is_sent_once(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(lease_seconds=3600)) as pipe, asyncio.timeout(120):
        rig, slow, other = Rig(pipe), Slow(), Scripted()
        await decided(rig, "one")
        first = asyncio.create_task(deliver_parts(await leased(rig), Deliveries(pipe, {"webhook": slow})))
        await slow.asked.wait()
        await pipe.servers.of_key(PLACE).client.flushall()
        await decided(rig, "two")  # wakes the destination for another worker
        await deliver(rig, other)
        assert other.sent == []
        assert (await rows(pipe))[0] == ("sending", 1, 0, None)
        slow.answers.set()
        await first
        await deliver(rig, other)
        assert (slow.sent, other.sent) == (["echo: one"], ["echo: two"])
        assert await rows(pipe) == [("sent", 1, 0, "m1"), ("sent", 1, 0, "m1")]
        assert await rig.residue() == []


async def test_a_part_whose_worker_died_is_sent_again_when_its_lease_time_is_over(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(lease_seconds=3600)) as pipe:
        rig, platform = Rig(pipe), Scripted()
        await decided(rig)
        await pipe.store.outbox.take(PLACE, "the lease of a worker that died")
        await deliver(rig, platform)
        assert platform.sent == []
        await write(pipe.store, "UPDATE outbox SET sending_at = sending_at - 3600000")
        await deliver(rig, platform)
        assert await rows(pipe) == [("sent", 2, 1, "m1")]


@pytest.mark.parametrize(("begun_s_ago", "left_s"), [(1000, 2600), (-1000, 3600)], ids=["begun", "clock set back"])
async def test_a_destination_waits_until_the_lease_of_whoever_may_still_be_sending_is_over_and_never_longer(
    make_settings: Callable[..., Settings], begun_s_ago: int, left_s: int
) -> None:
    async with open_pipeline(make_settings(lease_seconds=3600)) as pipe:
        rig = Rig(pipe)
        await decided(rig)
        await pipe.store.outbox.take(PLACE, "the lease of a worker that was paused")
        await write(pipe.store, f"UPDATE outbox SET sending_at = sending_at - {begun_s_ago * 1000}")
        await deliver(rig, Scripted())
        client = pipe.servers.of_key(PLACE).client
        seconds, _ = await client.time()
        until = await client.hget(keys.state(pipe.deliveries.name, PLACE), "until")
        assert until is not None and left_s - 300 < int(until) / 1000 - seconds <= left_s + 1


async def test_an_interrupted_part_of_a_platform_that_is_connected_no_more_is_a_dead_letter(rig: Rig) -> None:
    await decided(rig)
    await begun_long_ago(rig, "the lease of a worker that died")
    await deliver_parts(await leased(rig), Deliveries(rig.pipe, {}))
    [letter] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert letter["reason"] == "no sender" and await rig.residue() == []


@pytest.mark.parametrize(("rounds", "sent"), [(1, 1), (2, 4)])
async def test_a_chat_with_many_replies_lets_others_go_first_after_as_many_rounds_as_a_lease_may_take(
    make_settings: Callable[..., Settings], rounds: int, sent: int
) -> None:
    """The first round is of the message that the wake came for, each further one of all that waits."""
    async with open_pipeline(make_settings(turns_per_lease=rounds)) as pipe:
        rig, platform = Rig(pipe), Scripted()
        for letter in "abcd":
            await decided(rig, letter)
        await deliver(rig, platform)
        assert platform.sent == [f"echo: {letter}" for letter in "abcd"[:sent]]
        if sent < 4:
            await deliver(rig, platform)
        assert platform.sent[:2] == ["echo: a", "echo: b"]


async def test_while_a_reply_is_sent_log_lines_are_about_the_message_that_it_answers(rig: Rig) -> None:
    about: list[str | None] = []

    class Logging(Scripted):
        async def send(self, part: Part) -> Receipt:
            about.append(log.correlation.get())
            return await super().send(part)

    accepted = [await rig.accept(text) for text in ("one", "two")]
    await rig.run_turns()
    await deliver(rig, Logging())
    assert about == [one.id for one in accepted]


async def test_nothing_of_a_delivery_is_left_when_it_is_over(rig: Rig) -> None:
    await decided(rig)
    await deliver(rig, Scripted(BUSY, Transient("HTTP 502")))
    await deliver(rig, platform := Scripted(BUSY))
    await deliver(rig, platform)
    assert await rig.transcript(key_of()) == ["hello", "echo: hello"]
    assert await rig.residue() == []

"""What all workers together may ask of a provider: each admission here is a worker of its own, on a real Valkey."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared import failpoints, keys
from shared.errors import HeldBack, RateLimited
from shared.redis_servers import RedisServer, Script, Servers
from shared.settings.provider_limits import ProviderLimits
from tests.support.outage import ValkeyOutage
from workers.agents.model.admission import Permit, ProviderAccount
from workers.limits import cooldowns
from workers.limits.admission import ADMIT, LEAVE, RedisAdmission
from workers.limits.cooldowns import LONGEST_SPREAD_SECONDS, Cooldowns

LEASE = timedelta(seconds=60)


class Workers:
    """Admissions on one Redis, each as a worker process has it."""

    def __init__(self, url: str) -> None:
        self.servers = Servers([url], 1)
        self.client: Any = self.servers.all[0].client
        self._opened: list[RedisAdmission] = []

    def worker(self, *, lease: timedelta = LEASE, runs: bool = True) -> RedisAdmission:
        """A worker; one that does not run neither listens nor renews, as if it were dead."""
        admission = RedisAdmission(self.servers, lease=lease, renew_every=lease / 4)
        if runs:
            admission.start()
        self._opened.append(admission)
        return admission

    async def close(self) -> None:
        for admission in self._opened:
            await admission.close()
        await self.servers.close()

    async def hearing(self, count: int) -> None:
        """Wait until so many workers listen for cool-downs."""
        while dict(await self.client.pubsub_numsub(keys.COOLDOWNS)).get(keys.COOLDOWNS.encode(), 0) < count:
            await asyncio.sleep(0.01)

    async def earlier(self, account: ProviderAccount, ms: int, *fields: str) -> None:
        """Let these times of an account be longer ago."""
        for field in fields:
            await self.client.hincrbyfloat(keys.limits(account.id), field, -ms)


@pytest.fixture
async def workers(redis_url: str) -> AsyncIterator[Workers]:
    opened = Workers(redis_url)
    yield opened
    await opened.close()


def account(id: str = "a1", **limits: Any) -> ProviderAccount:
    return ProviderAccount(id, "provider", "model", ProviderLimits(**limits))


async def refused(admission: RedisAdmission, whom: ProviderAccount, tokens: int = 0) -> timedelta:
    with pytest.raises(RateLimited) as caught:
        await admission.admit(whom, tokens)
    return caught.value.retry_after


async def tokens_left(workers: Workers) -> float:
    return float(await workers.client.hget(keys.limits("a1"), "tokens"))


async def test_without_limits_and_refusals_nothing_is_asked_of_redis(workers: Workers) -> None:
    worker = workers.worker(runs=False)
    before = (await workers.client.info("stats"))["total_commands_processed"]
    permits = [await worker.admit(account(), 0) for _ in range(100)]
    for permit in permits:
        worker.leave(permit, 10)
    assert (await workers.client.info("stats"))["total_commands_processed"] - before <= 1
    assert await workers.client.keys("kt:*") == []


async def test_a_cool_down_reaches_every_worker_at_once_and_waits_are_spread(workers: Workers) -> None:
    first, *others = [workers.worker() for _ in range(4)]
    await workers.hearing(4)
    wait = await first.refuse(Permit(account()), timedelta(seconds=7))
    assert timedelta(seconds=6.9) < wait <= timedelta(seconds=7 + LONGEST_SPREAD_SECONDS)
    waits = []
    for other in others:
        while other._cooldowns.wait("a1") is None:
            await asyncio.sleep(0.01)
        waits += [await refused(other, account()) for _ in range(5)]
        assert (await other.admit(account("a2"), 0)).account.id == "a2"  # another key of the provider is not concerned
    assert min(waits) > timedelta(seconds=6) and max(waits) - min(waits) > timedelta(seconds=0.5)
    assert await workers.client.pttl(keys.limits("a1")) > 7000  # and it goes away by itself


async def test_a_worker_that_heard_nothing_is_told_by_redis_where_limits_are_set(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooldowns, "random", SimpleNamespace(uniform=lambda _, high: high))
    deaf, whom = workers.worker(runs=False), account(concurrency=4)
    await workers.worker().refuse(Permit(whom, "p1"), timedelta(seconds=5))
    with pytest.raises(RateLimited) as caught:
        await deaf.admit(whom, 0)
    assert timedelta(seconds=5) < caught.value.retry_after <= timedelta(seconds=10)  # what is left, and as much again
    assert caught.value.provider == "provider" and not isinstance(caught.value, HeldBack)


@pytest.mark.parametrize("limits", [{}, {"concurrency": 1}], ids=["without limits", "with limits"])
async def test_a_short_cool_down_is_waited_for_and_then_requests_are_counted_where_limits_are_set(
    workers: Workers, limits: dict[str, Any]
) -> None:
    worker, whom = workers.worker(runs=False), account(**limits)
    await worker.refuse(Permit(whom), timedelta(seconds=0.2))
    begun = time.monotonic()
    permit = await worker.admit(whom, 0)
    assert time.monotonic() - begun >= 0.19
    assert await workers.client.zrange(keys.permits("a1"), 0, -1) == ([permit.id.encode()] if limits else [])
    assert bool(permit.id) == bool(limits)


async def test_a_provider_that_asks_for_no_time_at_all_is_not_waited_for(workers: Workers) -> None:
    worker = workers.worker(runs=False)
    assert await worker.refuse(Permit(account()), timedelta(0)) == timedelta(0)


async def test_a_worker_that_has_closed_hears_of_nothing_any_more(workers: Workers) -> None:
    worker = workers.worker()
    worker.start()  # once more
    await workers.hearing(1)
    assert await workers.client.pubsub_numsub(keys.COOLDOWNS) == [(keys.COOLDOWNS.encode(), 1)]
    await worker.close()
    while await workers.client.pubsub_numsub(keys.COOLDOWNS) != [(keys.COOLDOWNS.encode(), 0)]:
        await asyncio.sleep(0.01)


async def test_where_the_provider_names_no_time_waits_double_up_to_a_minute_and_a_quiet_minute_ends_that(
    workers: Workers,
) -> None:
    whom, base = account(), list[int]()
    for _ in range(9):
        worker = workers.worker(runs=False)
        await worker.refuse(Permit(whom), None)
        assert await worker.refuse(Permit(whom), None)  # sent before the cool-down: it counts no further
        base.append(int(await workers.client.hget(keys.limits("a1"), "base")))
        await workers.earlier(whom, 60_000, "cool_until")
    assert base == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert not await workers.client.hexists(keys.limits("a1"), "halved")  # nobody limits open requests
    await workers.earlier(whom, 61_000, "cool_until")
    await workers.worker(runs=False).refuse(Permit(whom), None)
    assert int(await workers.client.hget(keys.limits("a1"), "base")) == 1000


async def test_open_requests_are_limited_over_all_workers_and_a_refusal_halves_them_for_a_while(
    workers: Workers,
) -> None:
    whom, some = account(concurrency=8), [workers.worker(runs=False) for _ in range(4)]

    async def let_in() -> int:
        """How many requests are let in at once, by all workers together."""
        permits: list[tuple[RedisAdmission, Permit]] = []
        with suppress(HeldBack):
            while True:
                worker = some[len(permits) % 4]
                permits.append((worker, await worker.admit(whom, 0)))
        for worker, permit in permits:
            worker.leave(permit, None)
        while await workers.client.zcard(keys.permits("a1")):
            await asyncio.sleep(0.01)
        return len(permits)

    assert await let_in() == 8
    await some[0].refuse(Permit(whom), timedelta(milliseconds=1))
    await asyncio.sleep(0.05)
    assert await let_in() == 4
    await workers.earlier(whom, 120_000, "refused_at")
    assert await let_in() == 6
    await workers.earlier(whom, 600_000, "refused_at")
    assert await let_in() == 8


async def test_ag59_the_permits_of_a_dead_worker_are_free_after_the_lease_and_those_of_a_living_one_stay(
    workers: Workers,
) -> None:
    whom, lease = account(concurrency=2), timedelta(seconds=1)
    dead, living, next_one = workers.worker(lease=lease, runs=False), workers.worker(lease=lease), workers.worker()
    await dead.admit(whom, 0)
    kept = await living.admit(whom, 0)
    begun = time.monotonic()
    await next_one.admit(whom, 0)  # waits for it: the lease is shorter than anybody's patience
    assert time.monotonic() - begun > 0.5
    with pytest.raises(HeldBack):
        await workers.worker(runs=False).admit(whom, 0)  # two seconds later the living one's is still taken
    living.leave(kept, None)
    await workers.worker(runs=False).admit(whom, 0)


async def test_a_worker_that_dies_right_after_its_admission_takes_a_permit_for_the_lease_only(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whom, lease = account(concurrency=1), timedelta(seconds=1)
    failpoints.arm(tmp_path, "limits.after_admission", failpoints.RAISE)
    monkeypatch.setattr("workers.limits.admission.reach", failpoints.looking(str(tmp_path)))
    with pytest.raises(failpoints.Injected):
        await workers.worker(lease=lease, runs=False).admit(whom, 0)
    assert await workers.client.zcard(keys.permits("a1")) == 1
    assert await workers.client.pttl(keys.permits("a1")) <= 1000
    await workers.worker(runs=False).admit(whom, 0)


@pytest.mark.parametrize("why", ["stopped", "refused meanwhile"])
async def test_a_request_that_ends_while_it_waits_for_its_moment_takes_nothing(workers: Workers, why: str) -> None:
    whom = account(requests_per_minute=60, tokens_per_minute=60_000, concurrency=20)
    worker, keep = workers.worker(runs=False), 100
    for _ in range(10):  # ten seconds' worth may be sent at once
        await worker.admit(whom, keep)
    before = await tokens_left(workers)
    waiting = asyncio.create_task(worker.admit(whom, 5000))
    while await workers.client.zcard(keys.permits("a1")) < 11:
        await asyncio.sleep(0.01)
    if why == "stopped":
        waiting.cancel()
    else:
        await worker.refuse(Permit(whom, "p1"), timedelta(seconds=30))
    with pytest.raises((asyncio.CancelledError, RateLimited)):
        await waiting
    while await workers.client.zcard(keys.permits("a1")) > 10:
        await asyncio.sleep(0.01)
    assert await tokens_left(workers) >= before


async def test_a_request_that_is_stopped_before_it_hears_of_its_permit_takes_nothing(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    whom, worker = account(tokens_per_minute=6000, concurrency=1), workers.worker(runs=False)
    call, admitted = RedisServer.call, asyncio.Event()

    async def unanswered(server: RedisServer, script: Script, *about: Any) -> Any:
        answer = await call(server, script, *about)
        if script is ADMIT:
            admitted.set()
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(RedisServer, "call", unanswered)
    asking = asyncio.create_task(worker.admit(whom, 700))
    await admitted.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await worker.close()
    assert await workers.client.zcard(keys.permits("a1")) == 0
    assert await tokens_left(workers) >= 1000


async def test_a_limit_that_is_not_set_limits_nothing(workers: Workers) -> None:
    for n, limit in enumerate(("concurrency", "requests_per_minute", "tokens_per_minute")):
        worker, whom = workers.worker(runs=False), account(f"b{n}", **{limit: 10**9})
        for _ in range(20):
            await worker.admit(whom, 10_000)


@pytest.mark.parametrize(
    ("limits", "used", "asked"),
    [
        ({"requests_per_minute": 60}, 900, False),
        ({"tokens_per_minute": 6000}, 10, False),  # as many as were expected
        ({"tokens_per_minute": 6000}, None, False),
        ({"tokens_per_minute": 6000}, 11, True),
        ({"concurrency": 4}, 10, True),
    ],
)
async def test_the_end_of_a_request_is_told_to_redis_only_where_something_is_to_be_given_back(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], used: int | None, asked: bool
) -> None:
    worker, whom = workers.worker(runs=False), account(**limits)
    permit = await worker.admit(whom, 10)
    call, told = RedisServer.call, list[Script]()

    async def noted(server: RedisServer, script: Script, *about: Any) -> Any:
        told.append(script)
        return await call(server, script, *about)

    monkeypatch.setattr(RedisServer, "call", noted)
    worker.leave(permit, used)
    await worker.close()
    assert told == ([LEAVE] if asked else [])


async def test_a_worker_renews_the_permits_of_its_open_requests_and_no_others(workers: Workers) -> None:
    whom, lease = account(concurrency=2), timedelta(seconds=2)
    worker, other = workers.worker(lease=lease), workers.worker(runs=False)
    kept, ended = await worker.admit(whom, 0), await worker.admit(whom, 0)
    for _ in range(3):
        with pytest.raises(HeldBack):
            await worker.admit(whom, 0)
    assert {id.decode() for id in await workers.client.zrange(keys.permits("a1"), 0, -1)} == {kept.id, ended.id}
    worker.leave(ended, None)
    assert worker._held == {"a1": {kept.id}}
    await other.admit(whom, 0)


async def test_waits_for_a_rate_are_made_up_to_a_quarter_longer_and_those_for_an_open_request_are_guessed(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def chosen(low: float, high: float) -> float:
        asked.append((low, high))
        return 100 if high < 2 else low  # a factor that no other time could be taken for

    monkeypatch.setattr("workers.limits.admission.random", SimpleNamespace(uniform=chosen))
    worker, full, fast = workers.worker(runs=False), account(concurrency=1), account("a2", requests_per_minute=30)
    await worker.admit(full, 0)
    assert await refused(worker, full) == timedelta(seconds=2)
    await worker.admit(fast, 0)
    await workers.client.hset(keys.limits("a2"), "requests", "-0.9")
    assert await refused(worker, fast) > timedelta(seconds=200)  # it is longer than a worker waits for a request
    assert {*asked} == {(2.0, 8.0), (1, 1.25)}


async def test_a_request_that_may_be_sent_in_half_a_second_is_sent_then(workers: Workers) -> None:
    whom, worker, begun = account(requests_per_minute=120), workers.worker(runs=False), time.monotonic()
    for _ in range(21):  # two in each second, and ten seconds' worth at once
        await worker.admit(whom, 0)
    assert time.monotonic() - begun >= 0.49


async def test_requests_beyond_a_minutes_worth_wait_and_those_who_wait_long_are_told_different_times(
    workers: Workers,
) -> None:
    whom, some = account(requests_per_minute=30), [workers.worker(runs=False) for _ in range(2)]
    for n in range(5):
        await some[n % 2].admit(whom, 0)
    begun = time.monotonic()
    await some[0].admit(whom, 0)
    assert 1 < time.monotonic() - begun < 30
    await workers.client.hset(keys.limits("a1"), "requests", "-3")
    waits = [await refused(some[n % 2], whom) for n in range(4)]
    assert len(set(waits)) == 4 and max(waits) - min(waits) > timedelta(seconds=2)


async def test_tokens_are_counted_as_expected_and_then_as_used(workers: Workers) -> None:
    whom, worker = account(tokens_per_minute=6000), workers.worker(runs=False)

    for used, after in ((400, 600), (None, -100)):
        permit = await worker.admit(whom, 700)
        worker.leave(permit, used)
        await worker.close()
        assert after - 1 <= await tokens_left(workers) < after + 300
    assert await refused(worker, whom, 700) > timedelta(seconds=2)
    large = account("a3", tokens_per_minute=60)
    await worker.admit(large, 1_000_000)  # more than a minute holds: it is let in, and the next one waits for long
    assert await refused(worker, large, 1) > timedelta(minutes=50)


async def test_while_redis_is_away_each_worker_keeps_to_a_share(tmp_path: Path) -> None:
    async with own_valkey(tmp_path) as (server, workers):
        worker, whom = workers.worker(), account(concurrency=20, share_without_redis=0.1)
        await worker.admit(whom, 0)
        server.stop()
        permits = [await worker.admit(whom, 0) for _ in range(2)]
        with pytest.raises(HeldBack):
            await worker.admit(whom, 0)
        worker.leave(permits[0], None)
        await worker.admit(whom, 0)
        slow = account("a2", requests_per_minute=60, share_without_redis=0.1)
        await worker.admit(slow, 0)
        assert await refused(worker, slow) > timedelta(seconds=8)
        assert await worker.refuse(Permit(slow, "p"), timedelta(seconds=20)) >= timedelta(seconds=19)
        unnamed = await worker.refuse(Permit(account("a3"), "p"), None)
        assert unnamed < timedelta(seconds=2)  # one second, and up to another one so that not all come back at once


async def test_garbage_on_the_channel_changes_nothing(workers: Workers) -> None:
    worker = workers.worker()
    await workers.hearing(1)
    for said in ("", "a1", "a1 x y", b"\xff \xff", "a1 9000 9000"):
        await workers.client.publish(keys.COOLDOWNS, said)
    while worker._cooldowns.wait("a1") is None:
        await asyncio.sleep(0.01)


def test_a_cool_down_is_never_made_shorter() -> None:
    known = Cooldowns()
    known.begin("a1", 30, 1)
    known.begin("a1", 1, 1)
    assert (known.wait("a1") or 0) > 29 and known.wait("a2") is None


def test_a_cool_down_is_waited_for_to_its_end_and_by_each_for_a_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, known = 100.0, Cooldowns()
    monkeypatch.setattr(cooldowns, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(cooldowns, "random", SimpleNamespace(uniform=lambda low, _: low))
    known.begin("a1", 10, LONGEST_SPREAD_SECONDS + 1)
    assert known.wait("a1") == 10
    monkeypatch.setattr(cooldowns, "random", SimpleNamespace(uniform=lambda _, high: high))
    assert known.wait("a1") == 10 + LONGEST_SPREAD_SECONDS
    known.begin("a2", 10, 0)
    now = 109.5
    assert known.wait("a2") == 0.5
    now = 110.0
    assert known.wait("a2") is None


@asynccontextmanager
async def own_valkey(directory: Path) -> AsyncIterator[tuple[ValkeyOutage, Workers]]:
    server = ValkeyOutage(directory)
    workers = Workers(server.url)
    try:
        yield server, workers
    finally:
        await workers.close()
        server.stop()

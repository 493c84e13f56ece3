"""Every script through its wrapper, on a real Valkey: each answer it can give, and what it leaves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from shared.busy import BusyMode
from shared.lane import Claim, Lane, Lease, Put, Recovered, Started
from shared.lane.freeing import Freed, free
from shared.lane.lease import Counts
from shared.lane.rq_names import JOB_PREFIX
from shared.lane.stopping import stop
from shared.lane.telling import tell_turn
from shared.reading.keys import keys_at_work
from shared.redis_servers import Servers
from tests.lane.workbench import DUE, LEASE, QUEUE, WAKES, Workbench, state
from workers.process.failed_job import record_failure

LEASE_S = LEASE.total_seconds()
SLACK_S = 120  # a machine may be slow; Redis' clock and these bounds may not


def near(seconds: float | None, expected: float) -> bool:
    return seconds is not None and expected - SLACK_S < seconds <= expected + 1


# -- put


async def test_the_first_mail_wakes_a_key_once_and_the_next_waits(bench: Workbench) -> None:
    assert await bench.put("k", 1) is Put.WOKEN
    assert await bench.put("k", 2) is Put.WAITING
    [job_id] = await bench.queued()
    assert await bench.state("k") == {"job": job_id}
    assert await bench.status(job_id) == "queued"
    assert near(await bench.due("k"), LEASE_S)
    assert await bench.client.smembers("rq:queues") == {QUEUE.encode()}  # RQ's tools find the queue


async def test_a_wake_that_its_maker_takes_is_popped_as_soon_as_it_is_queued(bench: Workbench) -> None:
    put, job_id = await bench.put_popped("k", 1)
    assert put is Put.WOKEN
    assert (await bench.queued(), await bench.popped()) == ([], [job_id])
    started = await bench.start_job(job_id)
    assert started.claim is Claim.LEASED and started.lease is not None and started.lease.mail[0].payload == b"m1"
    assert await bench.popped() == []


async def test_a_key_that_is_awake_already_gives_its_maker_nothing_to_start(bench: Workbench) -> None:
    await bench.put("k", 1)
    put, job_id = await bench.put_popped("k", 2)
    assert put is Put.WAITING
    assert await bench.popped() == [] and len(await bench.queued()) == 1
    assert (await bench.start_job(job_id)).claim is Claim.GONE


async def test_a_maker_without_room_queues_its_wake_like_anybody(bench: Workbench) -> None:
    put, job_id = await bench.put_popped("k", 1, room=False)
    assert put is Put.WOKEN
    assert (await bench.queued(), await bench.popped()) == ([job_id], [])


async def test_keys_wake_independently(bench: Workbench) -> None:
    assert [await bench.put(key, 1) for key in ("a", "b", "a:b")] == [Put.WOKEN] * 3
    assert len(await bench.queued()) == 3


async def test_mail_is_ordered_by_its_number_whoever_came_first(bench: Workbench) -> None:
    for seq in (3, 1, 10, 2):
        await bench.put("k", seq)
    assert [seq for seq, _ in await bench.mail("k")] == [1, 2, 3, 10]
    assert [m.seq for m in (await bench.lease(limit=3)).mail] == [1, 2, 3]


async def test_putting_the_same_mail_again_changes_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    before = await bench.mail("k"), await bench.queued(), await bench.state("k")
    assert await bench.put("k", 1) is Put.WAITING
    assert await bench.put("k", 7, b"m1") is Put.WAITING  # the payload is the mail; its first number stands
    assert (await bench.mail("k"), await bench.queued(), await bench.state("k")) == before


async def test_a_full_mailbox_refuses_new_mail_but_not_a_repetition(bench: Workbench) -> None:
    assert await bench.put("k", 1, limit=2) is Put.WOKEN
    assert await bench.put("k", 2, limit=2) is Put.WAITING
    assert await bench.put("k", 3, limit=2) is Put.FULL
    assert await bench.put("k", 2, limit=2) is Put.WAITING
    assert [seq for seq, _ in await bench.mail("k")] == [1, 2]


async def test_what_was_seen_is_not_taken_twice_even_after_it_was_answered(bench: Workbench) -> None:
    assert await bench.put("k", 0, b"a", seen="id1", seen_ttl_s=100) is Put.WOKEN
    assert await bench.put("k", 0, b"a", seen="id1", seen_ttl_s=100) is Put.SEEN
    lease = await bench.lease()
    await lease.acknowledge([lease.mail[0].seq], limit=1)
    assert await bench.put("k", 0, b"a", seen="id1", seen_ttl_s=100) is Put.SEEN
    assert await bench.residue() == ["kt:seen:id1"]
    assert 0 < await bench.client.ttl("kt:seen:id1") <= 100


async def test_refused_mail_was_not_seen(bench: Workbench) -> None:
    await bench.put("k", 0, b"a", limit=1, seen="id1", seen_ttl_s=100)
    assert await bench.put("k", 0, b"b", limit=1, seen="id2", seen_ttl_s=100) is Put.FULL
    lease = await bench.lease()
    await lease.acknowledge([lease.mail[0].seq], limit=1)
    assert await bench.put("k", 0, b"b", limit=1, seen="id2", seen_ttl_s=100) is Put.WOKEN


async def test_a_mailbox_that_numbers_by_itself_keeps_the_order_of_arrival(bench: Workbench) -> None:
    payloads = [str(n).encode() for n in range(50)]
    for payload in payloads:
        await bench.put("k", 0, payload)
    mail = await bench.mail("k")
    assert [payload for _, payload in mail] == payloads
    assert len({seq for seq, _ in mail}) == 50 and mail[0][0] > 10**15


async def test_a_mailbox_numbers_by_redis_own_clock_in_microseconds(bench: Workbench) -> None:
    async def now_us() -> int:
        seconds, micros = await bench.client.time()
        return int(seconds) * 10**6 + int(micros)

    before = await now_us()
    await bench.put("k", 0, b"a")
    [(seq, _)] = await bench.mail("k")
    assert before <= seq <= await now_us()


async def test_the_order_of_arrival_holds_when_redis_clock_steps_back(bench: Workbench) -> None:
    tomorrow = int((await bench.client.time())[0] + 86_400) * 10**6
    await bench.put("k", tomorrow, b"before the step")
    await bench.put("k", 0, b"after it")
    await bench.put("k", 0, b"later")
    assert await bench.mail("k") == [
        (tomorrow, b"before the step"),
        (tomorrow + 1, b"after it"),
        (tomorrow + 2, b"later"),
    ]


# -- start


async def test_starting_a_wake_leases_its_key_with_the_first_mail(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.put("k", 2)
    [job_id] = await bench.queued()
    lease = await bench.lease()
    assert (lease.key, lease.counts.begun, lease.counts.ours_begun) == ("k", 1, True)
    assert [(m.seq, m.payload) for m in lease.mail] == [(1, b"m1")]
    held = await bench.state("k")
    assert (held["token"], held["job"], held["attempts"]) == (lease.token, job_id, "1")
    assert near(await bench.due("k"), LEASE_S)
    assert await bench.status(job_id) == "started" and await bench.popped() == []


async def test_rq_lists_what_runs_a_minute_longer_than_its_worker_may_be_silent(bench: Workbench) -> None:
    await bench.put("k", 1)
    wake = (await bench.lease()).wake
    silent_until = await bench.client.zscore(wake.running_key, wake.running_entry)
    assert await bench.client.zscore(wake.executions_key, wake.execution) - silent_until == 60
    ends_ms = await bench.client.pexpiretime(wake.execution_key)
    assert silent_until <= ends_ms / 1000 <= silent_until + 1  # the other is a whole second
    assert await bench.client.pexpiretime(wake.executions_key) - ends_ms == 60_000


async def test_counts_that_redis_does_not_have_begin_anew(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.hset(state("k"), "of", 1)
    assert (await bench.lease()).counts == Counts(1, begun=1, failed=0, ours_begun=True)


async def test_a_second_wake_of_a_leased_key_is_spent(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.expire("k")
    assert await bench.lane.recover("k") is Recovered.LEASE_EXPIRED
    taken = await bench.lease()
    await bench.client.rpush(QUEUE, lease.wake.id)  # the first wake again, as RQ's own tools could requeue it
    claim, claimed = await bench.start()
    assert (claim, claimed) == (Claim.HELD, None)
    assert (await bench.state("k"))["token"] == taken.token


async def test_a_wake_of_a_delayed_key_is_spent_and_the_delay_stands(bench: Workbench) -> None:
    await bench.put("k", 1)
    [job_id] = await bench.queued()
    await (await bench.lease()).release(delay=timedelta(minutes=5), spent=True)
    started = await bench.start_job(job_id)
    assert started.claim is Claim.HELD and started.wake is not None and started.lease is None
    assert near(await bench.due("k"), 300)


async def test_a_wake_without_mail_is_idle_and_leaves_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.delete("kt:turns:mail:k")
    assert await bench.start() == (Claim.IDLE, None)
    assert await bench.residue() == []


async def test_a_wake_that_redis_forgot_is_gone(bench: Workbench) -> None:
    await bench.put("k", 1)
    job_id = await bench.pop()
    assert job_id is not None
    await bench.client.delete(JOB_PREFIX + job_id)
    assert await bench.start_job(job_id) == Started(Claim.GONE, None, b"", None)
    assert await bench.popped() == []


async def test_a_job_that_names_no_key_claims_none(bench: Workbench) -> None:
    await bench.client.hset(JOB_PREFIX + "x", mapping={"data": "anything", "status": "queued"})
    started = await bench.start_job("x")
    assert (started.claim, started.data, started.lease) == (Claim.IDLE, b"anything", None) and started.wake is not None
    assert await bench.residue() == []


async def test_a_further_attempt_counts_only_when_it_begins(bench: Workbench) -> None:
    await bench.put("k", 1)
    first = await bench.lease()
    assert await first.begin(1) and first.counts.begun == 1  # counted by the start
    await bench.expire("k")
    await bench.lane.recover("k")
    second = await bench.lease()
    assert (second.counts.begun, second.counts.ours_begun) == (1, False)
    assert await second.begin(1) and second.counts.begun == 2
    assert await second.begin(1) and second.counts.begun == 2  # once per lease
    assert (await bench.state("k"))["attempts"] == "2"


async def test_an_attempt_of_a_lost_lease_is_not_counted(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(spent=True)
    late = await bench.lease()
    await bench.expire("k")
    await bench.lane.recover("k")
    await bench.lease()
    assert not await late.begin(1)
    assert (await bench.state("k"))["attempts"] == "1"


async def test_counts_belong_to_one_piece_of_mail(bench: Workbench) -> None:
    """Mail with a lower number may come to the head later: it starts with counts of its own."""
    await bench.put("k", 2)
    failed = await bench.lease()
    await failed.release(spent=True)
    await bench.put("k", 1)
    earlier = await bench.lease()
    assert (earlier.mail[0].seq, earlier.counts.begun, earlier.counts.ours_begun) == (1, 1, True)
    assert earlier.attempts_before(1) == (0, 0)


async def test_of_other_mail_than_the_counted_no_attempt_is_known(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(spent=True)
    lease = await bench.lease()
    assert (lease.attempts_before(1), lease.attempts_before(2)) == ((1, 1), (0, 0))


async def test_who_asks_whether_a_key_is_still_its_own_has_lost_it_where_it_is_not(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease, told = await bench.lease(), list[str]()
    lease.on_lost = lambda: told.append("lost")
    assert await lease.is_ours() and not lease.lost and told == []
    await bench.expire("k")
    await bench.lane.recover("k")
    await bench.lease()
    assert not await lease.is_ours() and lease.lost and told == ["lost"]


async def test_a_lease_may_begin_other_mail_than_its_head(bench: Workbench) -> None:
    """As when the journal says that another message comes first."""
    await bench.put("k", 2)
    lease = await bench.lease()
    assert await lease.begin(1) and lease.attempts_before(1) == (0, 0)
    await lease.release(spent=True)
    head = await bench.lease()
    assert (head.mail[0].seq, head.attempts_before(2)) == (2, (0, 0))


# -- acknowledge


async def test_acknowledging_gives_the_next_mail_under_the_same_lease(bench: Workbench) -> None:
    for seq in (1, 2, 3):
        await bench.put("k", seq)
    lease = await bench.lease()
    assert [m.seq for m in await lease.acknowledge([1], limit=1)] == [2]
    assert not lease.ended and (lease.counts.begun, lease.counts.ours_begun) == (1, True)
    assert [m.seq for m in await lease.acknowledge([2], limit=5)] == [3]
    assert await bench.status(lease.wake.id) == "started" and await bench.queued() == []


async def test_acknowledging_the_last_mail_leaves_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    assert await lease.acknowledge([1], limit=1) == []
    assert lease.ended and not lease.lost
    assert await bench.residue() == [] and await bench.status(lease.wake.id) == "finished"
    assert await bench.put("k", 2) is Put.WOKEN


async def test_mail_that_came_meanwhile_keeps_the_key_from_going_idle(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    assert await bench.put("k", 2) is Put.WAITING
    assert [m.seq for m in await lease.acknowledge([1], limit=1)] == [2]


async def test_handing_over_gives_the_key_to_a_fresh_wake(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.put("k", 2)
    lease = await bench.lease()
    assert await lease.acknowledge([1], limit=1, hand_over=True) == []
    assert lease.ended and not lease.lost
    [job_id] = await bench.queued()
    assert job_id != lease.wake.id and await bench.state("k") == {"job": job_id}
    assert near(await bench.due("k"), LEASE_S)  # somebody looks for the wake
    again = await bench.lease()
    assert ([m.seq for m in again.mail], again.counts.begun, again.counts.ours_begun) == ([2], 1, True)


async def test_handing_over_an_empty_mailbox_wakes_nobody(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).acknowledge([1], limit=1, hand_over=True)
    assert await bench.queued() == [] and await bench.residue() == []


async def test_a_lost_lease_acknowledges_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    late = await bench.lease()
    await bench.expire("k")
    await bench.lane.recover("k")
    holder = await bench.lease()
    assert await late.acknowledge([1], limit=1) == []
    assert late.lost and late.ended
    assert [seq for seq, _ in await bench.mail("k")] == [1]
    assert (await bench.state("k"))["token"] == holder.token
    assert await bench.status(late.wake.id) == "finished"


async def test_only_the_named_numbers_are_dropped(bench: Workbench) -> None:
    for seq in (1, 2, 3, 4):
        await bench.put("k", seq)
    lease = await bench.lease(limit=4)
    assert [m.seq for m in await lease.acknowledge([2, 4, 99], limit=4)] == [1, 3]


async def test_a_lease_is_renewed_for_its_second_turn_too(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.put("k", 2)
    lease = await bench.lease()
    assert [m.seq for m in await lease.acknowledge([1], limit=1)] == [2]
    await bench.expire("k")
    await bench.renew(lease)
    assert not lease.lost and near(await bench.due("k"), LEASE_S)
    assert await bench.lane.recover("k") is Recovered.NOTHING


# -- release


async def test_a_key_released_now_is_awake_with_its_mail(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await lease.release(spent=True)
    [job_id] = await bench.queued()
    assert lease.ended and await bench.state("k") == {"job": job_id, "of": "1", "attempts": "1", "failed": "1"}
    assert await bench.status(lease.wake.id) == "finished" and near(await bench.due("k"), LEASE_S)
    again = await bench.lease()
    assert (again.counts.begun, again.counts.ours_begun, again.mail[0].seq) == (1, False, 1)
    assert again.attempts_before(1) == (1, 1)  # one, and known to have failed


async def test_an_attempt_whose_end_nobody_saw_is_not_known_to_have_failed(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.lease()
    await bench.expire("k")
    await bench.lane.recover("k")
    assert (await bench.lease()).attempts_before(1) == (1, 0)


async def test_a_release_that_spends_nothing_takes_the_attempt_back(bench: Workbench) -> None:
    await bench.put("k", 1)
    for _ in range(5):
        lease = await bench.lease()
        assert await lease.begin(lease.mail[0].seq) and lease.counts.begun == 1
        await lease.release(spent=False)
    await (await bench.lease()).release(spent=True)
    not_begun = await bench.lease()
    await not_begun.release(spent=False)  # never begun, so there is nothing to take back
    assert (await bench.state("k"))["attempts"] == "1"


async def test_a_delayed_key_sleeps_in_redis_and_not_in_a_worker(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await lease.release(delay=timedelta(minutes=5), spent=True)
    assert set(await bench.state("k")) == {"until", "of", "attempts", "failed"} and await bench.queued() == []
    assert near(await bench.due("k"), 300)
    assert await bench.put("k", 2) is Put.WAITING
    assert await bench.lane.recover("k") is Recovered.NOTHING
    await bench.expire("k")
    assert await bench.lane.recover("k") is Recovered.DELAY_ENDED
    assert [m.seq for m in (await bench.lease()).mail] == [1]


async def test_a_short_delay_ends_by_itself_without_a_housekeeper(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(delay=timedelta(milliseconds=20), spent=True)
    async with asyncio.timeout(60):
        while not await bench.queued():
            await asyncio.sleep(0.01)
    assert [m.seq for m in (await bench.lease()).mail] == [1]


async def test_a_lost_lease_releases_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    late = await bench.lease()
    await bench.expire("k")
    await bench.lane.recover("k")
    holder = await bench.lease()
    before = await bench.state("k")
    await late.release(delay=timedelta(minutes=5), spent=False)
    assert await bench.state("k") == before and before["token"] == holder.token
    assert await bench.queued() == []


# -- renew


async def test_renewing_extends_a_lease(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.expire("k")
    await bench.renew(lease)
    assert not lease.lost and near(await bench.due("k"), LEASE_S)
    assert await bench.lane.recover("k") is Recovered.NOTHING


async def test_a_lane_renews_what_it_holds_by_itself(bench: Workbench) -> None:
    every = timedelta(milliseconds=5)
    lane = Lane(bench.servers, WAKES, lease=LEASE, renew_every=every, partitions=1)
    bench.lane = lane
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.expire("k")
    async with asyncio.timeout(60):
        while not near(await bench.due("k"), LEASE_S):
            await asyncio.sleep(0.01)
    assert not lease.lost


async def test_renewing_tells_who_lost_its_lease_and_nobody_else(bench: Workbench) -> None:
    for key in ("a", "b"):
        await bench.put(key, 1)
    late, kept = await bench.lease(), await bench.lease()
    assert (late.key, kept.key) == ("a", "b")
    told = []
    late.on_lost = lambda: told.append("a")
    kept.on_lost = lambda: told.append("b")
    await bench.expire("a")
    await bench.lane.recover("a")
    holder = await bench.lease()
    await bench.renew(late, kept)
    assert told == ["a"] and (late.lost, kept.lost, holder.lost) == (True, False, False)


async def test_a_lease_that_redis_forgot_is_taken_again(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.client.flushall()
    await bench.renew(lease)
    assert not lease.lost and (await bench.state("k"))["token"] == lease.token
    assert await bench.put("k", 2) is Put.WAITING  # the holder will see it
    assert [m.seq for m in await lease.acknowledge([1], limit=1)] == [2]
    assert await lease.acknowledge([2], limit=1) == []
    assert await bench.residue() == []


async def test_a_forgotten_lease_of_a_dead_worker_leaves_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.client.flushall()
    await bench.renew(lease)
    await bench.expire("k")
    assert await bench.lane.recover("k") is Recovered.NOTHING
    assert await bench.residue() == []


async def test_a_renewal_that_comes_too_late_takes_an_idle_key_not_again(bench: Workbench) -> None:
    """Redis still knows the job, so nothing was lost: the key went idle by itself."""
    await bench.put("k", 1)
    lease = await bench.lease()
    await lease.acknowledge([1], limit=1)
    bench.lane.renewal.hold(lease)
    await bench.renew(lease)
    assert lease.lost and await bench.residue() == []


async def test_a_lease_that_ended_while_its_renewal_was_under_way_is_not_declared_lost(bench: Workbench) -> None:
    await bench.put("k", 1)
    late = await bench.lease()
    told: list[str] = []
    late.on_lost = lambda: told.append("lost")
    await bench.expire("k")
    await bench.lane.recover("k")
    await bench.lease()
    renewing = asyncio.ensure_future(bench.renew(late))
    await asyncio.sleep(0)  # it has asked Redis
    await asyncio.gather(late.release(spent=False), renewing)
    assert (late.ended, late.lost, told) == (True, False, [])


# -- recover


async def test_an_expired_lease_is_woken_with_its_count_of_attempts(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.lease()
    await bench.expire("k")
    assert await bench.lane.recover("k") is Recovered.LEASE_EXPIRED
    [job_id] = await bench.queued()
    assert await bench.state("k") == {"job": job_id, "of": "1", "attempts": "1", "failed": "0"}
    assert await bench.lane.recover("k") is Recovered.NOTHING  # several housekeepers may call it
    assert await bench.queued() == [job_id]


async def test_a_key_whose_lease_expired_goes_to_the_front_of_the_queue(bench: Workbench) -> None:
    await bench.put("a", 1)
    await bench.put("b", 1)
    await bench.lease()
    [waiting] = await bench.queued()
    await bench.expire("a")
    await bench.lane.recover("a")
    [first, second] = await bench.queued()
    assert second == waiting and (await bench.state("a"))["job"] == first


async def test_a_key_whose_message_lost_a_second_worker_goes_to_the_end_of_the_queue(bench: Workbench) -> None:
    await bench.put("a", 1)
    await bench.put("b", 1)
    await bench.lease()
    [waiting] = await bench.queued()
    await bench.expire("a")
    await bench.lane.recover("a")
    assert await (await bench.lease()).begin(1)
    await bench.expire("a")
    await bench.lane.recover("a")
    [first, second] = await bench.queued()
    assert first == waiting and (await bench.state("a"))["job"] == second


async def test_a_key_whose_delay_ended_goes_to_the_end_of_the_queue(bench: Workbench) -> None:
    await bench.put("a", 1)
    await bench.put("b", 1)
    await (await bench.lease()).release(delay=timedelta(minutes=5), spent=True)
    [waiting] = await bench.queued()
    await bench.expire("a")
    await bench.lane.recover("a")
    assert (await bench.queued())[0] == waiting


@pytest.mark.parametrize(("found", "place"), [(Recovered.WAKE_LOST, 0), (Recovered.WAKE_LATE, 1)])
async def test_a_lost_wake_is_replaced_at_the_front_of_the_queue_and_a_late_one_at_its_end(
    bench: Workbench, found: Recovered, place: int
) -> None:
    await bench.put("a", 1)
    job_id = await bench.pop()
    await bench.put("b", 1)
    if found is Recovered.WAKE_LOST:
        await bench.client.delete(f"{JOB_PREFIX}{job_id}")
    else:
        await bench.client.hset(state("a"), "waited", f"3:{job_id}")
    assert await bench.lane.recover("a") is found
    assert (await bench.queued())[place] == (await bench.state("a"))["job"]


async def test_a_queued_wake_is_trusted(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.hurry("k")
    assert await bench.lane.recover("k") is Recovered.NOTHING
    assert len(await bench.queued()) == 1 and near(await bench.due("k"), LEASE_S)


async def test_a_wake_that_is_not_started_is_made_anew_after_a_bounded_time(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.delete(QUEUE)
    looks = []
    for _ in range(4):
        await bench.hurry("k")
        looks.append(await bench.lane.recover("k"))
    assert looks == [Recovered.NOTHING] * 3 + [Recovered.WAKE_LATE]
    lease = await bench.lease()
    assert [m.seq for m in lease.mail] == [1]
    assert await lease.acknowledge([1], limit=1) == [] and await bench.residue() == []


async def test_a_long_queue_hardly_grows_by_looking_at_what_waits_in_it(bench: Workbench) -> None:
    await bench.put("k", 1)
    late = [look for look in range(1, 200) if await bench.lane.recover("k") is Recovered.WAKE_LATE]
    assert late == [4, 8, 16, 32, 64, 128, 192]
    assert len(await bench.queued()) == 1 + len(late)


async def test_every_wake_has_its_time_to_be_started(bench: Workbench) -> None:
    await bench.put("k", 1)
    for _ in range(3):
        assert await bench.lane.recover("k") is Recovered.NOTHING
    await (await bench.lease()).release(spent=True)
    looks = [await bench.lane.recover("k") for _ in range(4)]
    assert looks == [Recovered.NOTHING] * 3 + [Recovered.WAKE_LATE]


@pytest.mark.parametrize("how", ["released", "handed over", "freed", "recovered"])
async def test_a_wake_that_is_made_is_looked_for_a_lease_later(bench: Workbench, how: str) -> None:
    await bench.put("k", 1)
    await bench.put("k", 2)
    lease = await bench.lease()
    await bench.hurry("k")
    match how:
        case "released":
            await lease.release(spent=True)
        case "handed over":
            await lease.acknowledge([1], limit=1, hand_over=True)
        case "freed":
            assert await free(bench.lane, "k") is Freed.LEASED
        case "recovered":
            await bench.expire("k")
            assert await bench.lane.recover("k") is Recovered.LEASE_EXPIRED
    assert len(await bench.queued()) == 1 and near(await bench.due("k"), LEASE_S)


@pytest.mark.parametrize("status", [None, "failed", "canceled", "finished"])
async def test_a_lost_wake_is_replaced(bench: Workbench, status: str | None) -> None:
    await bench.put("k", 1)
    job_id = await bench.pop()
    if status is None:
        await bench.client.delete(f"{JOB_PREFIX}{job_id}")
    else:
        await bench.client.hset(f"{JOB_PREFIX}{job_id}", "status", status)
    assert await bench.lane.recover("k") is Recovered.WAKE_LOST
    assert (await bench.lease()).mail[0].seq == 1


async def test_recovering_a_key_without_mail_leaves_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.delete("kt:turns:mail:k")
    assert await bench.lane.recover("k") is Recovered.NOTHING
    assert await bench.residue() == []
    assert await bench.lane.recover("never heard of") is Recovered.NOTHING


async def test_a_living_lease_is_left_alone(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.hurry("k")
    assert await bench.lane.recover("k") is Recovered.NOTHING
    assert (await bench.state("k"))["token"] == lease.token and near(await bench.due("k"), LEASE_S)


async def test_what_is_due_is_found_and_the_next_time_is_told(bench: Workbench) -> None:
    for key in ("a", "b", "c"):
        await bench.put(key, 1)
    await bench.hurry("b")
    late, next_s = await bench.lane.due(bench.server, 10)
    assert late == ["b"] and near(next_s, LEASE_S)
    await bench.hurry("a")
    pages = [await bench.lane.due(bench.server, 1, skip=skip) for skip in range(3)]
    assert [late for late, _ in pages] == [["a"], ["b"], []] and all(near(next_s, LEASE_S) for _, next_s in pages)
    await bench.client.delete(DUE)
    assert await bench.lane.due(bench.server, 10) == ([], float("inf"))


# -- stop


async def test_stopping_a_key_that_is_awake_queues_no_second_wake(bench: Workbench) -> None:
    await bench.put("k", 1)
    [job_id] = await bench.queued()
    stopped = await stop(bench.lane, "k", 7, 10)
    assert stopped is not None and not stopped.running and stopped.mail == (b"m1",)
    assert await bench.queued() == [job_id] and await bench.state("k") == {"job": job_id, "stop": "7"}


async def test_stopping_a_key_whose_lease_expired_leaves_it_to_whoever_finds_it(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.expire("k")
    stopped = await stop(bench.lane, "k", 7, 10)
    assert stopped is not None and not stopped.running
    assert await bench.queued() == [] and (await bench.state("k"))["job"] == lease.wake.id
    assert await bench.lane.recover("k") is Recovered.LEASE_EXPIRED
    assert (await bench.lease()).drop_until_ms == 7


async def test_stopping_ends_a_delay(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(delay=timedelta(minutes=5), spent=True)
    assert await stop(bench.lane, "k", 7, 10) is not None
    assert near(await bench.due("k"), LEASE_S)  # somebody looks for the wake
    assert (await bench.lease()).drop_until_ms == 7


# -- listen, tell


async def test_a_turn_that_listens_sees_what_waits_and_its_channel_is_told_of_more(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.put("k", 2)
    for limit, seen in ((10, [1, 2]), (1, [1])):
        last, waiting = await lease.listen(limit)
        assert (last, [one.seq for one in waiting]) == (2, seen)
    async with bench.client.pubsub() as channel:
        await channel.subscribe("rq:pubsub:test")
        await channel.get_message(timeout=5)
        assert await bench.put("k", 3) is Put.WAITING
        heard = await channel.get_message(timeout=5)
    assert heard is not None and lease.wake.id.encode() in heard["data"] and b"look-turn" in heard["data"]
    await lease.release(spent=False)
    assert "hears" not in await bench.state("k")


async def test_a_turn_whose_key_is_anothers_hears_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    late = await bench.lease()
    await bench.expire("k")
    await bench.lane.recover("k")
    await bench.lease()
    assert await late.listen(10) == (0, []) and "hears" not in await bench.state("k")


async def test_only_a_key_that_a_worker_holds_can_be_told_something(bench: Workbench) -> None:
    assert not await tell_turn(bench.lane, "k")
    await bench.put("k", 1)
    assert not await tell_turn(bench.lane, "k", BusyMode.STEER)
    await bench.lease()
    async with bench.client.pubsub() as channel:
        await channel.subscribe("rq:pubsub:test")
        await channel.get_message(timeout=5)
        assert await tell_turn(bench.lane, "k", BusyMode.STEER)
        heard = await channel.get_message(timeout=5)
    assert heard is not None and b'"steer"' in heard["data"] and b'"after":"1"' in heard["data"]
    await bench.expire("k")
    assert not await tell_turn(bench.lane, "k")


async def test_a_renewal_tells_a_turn_that_mail_waits_behind_it(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease, seen = await bench.lease(), list[str]()
    lease.on_held_up = lambda: seen.append("held up")
    await bench.renew(lease)
    assert seen == []
    await bench.put("k", 2)
    await bench.renew(lease)
    assert seen == ["held up"]


# -- what an operator sees


async def test_keys_that_are_idle_are_not_listed(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.client.zadd(DUE, {"was here": 1})
    assert [(state.key, state.state) for state in await keys_at_work(bench.lane, 10)] == [("k", "awake")]


# -- requeue, finish, awake


async def test_popped_wakes_go_back_to_the_front_once(bench: Workbench) -> None:
    for key in ("a", "b"):
        await bench.put(key, 1)
    first, second = await bench.queued()
    assert await bench.pop() == first
    assert await bench.lane.requeue(bench.server, "turns-0", [first, "unknown"]) == 1
    assert await bench.lane.requeue(bench.server, "turns-0", [first]) == 0
    assert await bench.queued() == [first, second] and await bench.popped() == []


async def test_finishing_a_wake_ends_it_once(bench: Workbench) -> None:
    await bench.client.hset("rq:worker:test", "birth", "then")
    await bench.put("k", 1)
    await bench.client.delete("kt:turns:mail:k")
    job_id = await bench.pop()
    assert job_id is not None
    wake = (await bench.start_job(job_id)).wake
    assert wake is not None
    for _ in range(2):  # an answer may be lost on the way and the call repeated
        await bench.lane.finish(wake)
    assert await bench.status(job_id) == "finished"
    assert await bench.client.hget("rq:worker:test", "successful_job_count") == b"1"
    assert await bench.client.xlen(f"rq:results:{job_id}") == 1
    seconds, _ = await bench.client.time()
    assert 0 < await bench.client.zscore("rq:finished:turns-0", job_id) - seconds <= WAKES.result_ttl_s + 1
    assert 0 < await bench.client.ttl(f"rq:results:{job_id}") <= WAKES.result_ttl_s
    assert 0 < await bench.client.ttl(f"{JOB_PREFIX}{job_id}") <= WAKES.result_ttl_s
    assert await bench.client.exists(f"rq:executions:{job_id}", "rq:wip:turns-0") == 0


@pytest.mark.parametrize("how", ["finished", "failed"])
async def test_of_a_job_that_ended_often_ten_results_are_kept(bench: Workbench, how: str) -> None:
    await bench.put("k", 1)
    wake = (await bench.lease()).wake
    for _ in range(12):
        await bench.client.xadd(wake.results_key, {"type": 1})
    await (bench.lane.finish(wake) if how == "finished" else record_failure(wake, "why"))
    assert await bench.client.xlen(wake.results_key) == 10


async def test_finishing_after_redis_forgot_everything_leaves_nothing(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    await bench.client.flushall()
    await bench.lane.finish(lease.wake)
    assert await bench.client.dbsize() == 0


async def test_awake_says_which_keys_redis_knows(bench: Workbench) -> None:
    await bench.put("a", 1)
    await bench.put("b", 1)
    await bench.lease()
    assert await bench.lane.awake(["x", "a", "b", "y"]) == [False, True, True, False]
    assert await bench.lane.awake([]) == []


# -- all of them


async def test_forgotten_scripts_are_loaded_again_without_harm(bench: Workbench) -> None:
    """A restarted Redis knows no scripts: each call finds that out by itself."""

    async def forget() -> None:
        await bench.client.script_flush()

    await forget()
    await bench.put("k", 1)
    await bench.put("k", 2)
    await forget()
    lease = await bench.lease()
    await forget()
    await bench.renew(lease)
    await forget()
    assert [m.seq for m in await lease.acknowledge([1], limit=1)] == [2]
    await forget()
    await lease.release(spent=True)
    await forget()
    again = await bench.lease()
    await forget()
    assert await again.begin(again.mail[0].seq) and again.counts.begun == 2
    await bench.expire("k")
    await forget()
    assert await bench.lane.recover("k") is Recovered.LEASE_EXPIRED
    job_id = await bench.pop()
    assert job_id is not None
    await forget()
    assert await bench.lane.requeue(bench.server, "turns-0", [job_id]) == 1
    last = await bench.lease()
    await forget()
    assert await last.acknowledge([2], limit=1) == []
    await forget()
    await bench.lane.finish(last.wake)
    assert await bench.residue() == []


async def test_forgotten_scripts_do_no_harm_to_calls_that_travel_together(bench: Workbench) -> None:
    await bench.client.script_flush()
    puts = await asyncio.gather(*(bench.put(f"k{n % 5}", n) for n in range(1, 51)))
    assert puts.count(Put.WOKEN) == 5 and puts.count(Put.WAITING) == 45
    for n in range(5):
        assert [seq for seq, _ in await bench.mail(f"k{n}")] == list(range(n or 5, 51, 5))


async def test_a_key_of_any_characters_is_kept_apart(bench: Workbench) -> None:
    odd = ["a b", "a:b", "ключ", "a\nb", "%00", "{k}"]
    for key in odd:
        assert await bench.put(key, 1, key.encode()) is Put.WOKEN
    leases: list[Lease] = [await bench.lease() for _ in odd]
    assert [(lease.key, lease.mail[0].payload.decode()) for lease in leases] == [(key, key) for key in odd]
    for lease in leases:
        assert await bench.client.exists(state(lease.key))
        await lease.acknowledge([1], limit=1)
    assert await bench.residue() == []


async def test_closing_ends_every_connection(bench: Workbench, redis_url: str) -> None:
    async def connections() -> int:
        return len(await bench.client.client_list())

    before = await connections()
    servers = Servers([redis_url], 1)
    lane = Lane(servers, WAKES, lease=LEASE, renew_every=LEASE, partitions=1)
    await lane.put("k", 1, b"m1")
    await servers.all[0].client.ping()
    assert await connections() == before + 2
    await lane.close()
    await servers.close()
    async with asyncio.timeout(60):
        while await connections() != before:
            await asyncio.sleep(0.01)

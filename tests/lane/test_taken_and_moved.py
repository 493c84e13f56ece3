"""Keys that are taken from their holder, moved to another server or shared: each answer of these scripts, and what it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shared import keys
from shared.busy import BusyMode
from shared.lane import Claim, Lane, Recovered
from shared.lane.elsewhere import MAIL_AT_ONCE, dissolve, move
from shared.lane.freeing import Freed, free
from shared.lane.lease import FIRST_MAILBOX_SEQ
from shared.lane.rq_names import FAILURE_TTL_SECONDS, JOB_PREFIX, failed_key, queue_key, running_key
from shared.lane.session_lock import JOINED, TICKET, UNAWARE, SessionLock
from shared.lane.stopping import stop
from shared.messages import Session
from shared.redis_servers import Servers
from shared.window import Window
from tests.lane.workbench import DUE, LEASE, NEVER, QUEUE, WAKES, Workbench, state

LEASE_MS = int(LEASE.total_seconds() * 1000)
SLACK_S = 120  # a machine may be slow


def near(seconds: float | None, expected: float) -> bool:
    return seconds is not None and expected - SLACK_S < seconds <= expected + 1


# -- free: an operator takes a key from its holder


async def test_freeing_an_idle_key_wakes_nobody(bench: Workbench) -> None:
    assert await free(bench.lane, "k") is Freed.IDLE
    assert await bench.queued() == [] and await bench.residue() == []


async def test_freeing_a_leased_key_wakes_it_and_does_not_count_the_attempt_that_was_cut_short(
    bench: Workbench,
) -> None:
    await bench.put("k", 1)
    holder = await bench.lease()
    assert await free(bench.lane, "k") is Freed.LEASED
    [job_id] = await bench.queued()
    assert await bench.state("k") == {"job": job_id, "of": "1", "attempts": "0", "failed": "0"}
    assert near(await bench.due("k"), LEASE.total_seconds())
    assert await holder.acknowledge([1], limit=1) == [] and holder.lost
    again = await bench.lease()
    assert (again.mail[0].seq, again.attempts_before(1)) == (1, (0, 0))


async def test_freeing_takes_back_no_attempt_that_was_not_counted(bench: Workbench) -> None:
    await bench.put("k", 1)
    await bench.lease()
    await bench.client.hset(state("k"), "attempts", 0)
    await free(bench.lane, "k")
    assert (await bench.state("k"))["attempts"] == "0"


async def test_freeing_a_delayed_key_ends_its_delay_and_keeps_its_attempts(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(delay=timedelta(minutes=5), spent=True)
    assert await free(bench.lane, "k") is Freed.DELAYED
    [job_id] = await bench.queued()
    assert await bench.state("k") == {"job": job_id, "of": "1", "attempts": "1", "failed": "1"}
    assert (await bench.lease()).attempts_before(1) == (1, 1)


async def test_freeing_a_key_that_is_awake_gives_it_a_second_wake(bench: Workbench) -> None:
    await bench.put("k", 1)
    [first] = await bench.queued()
    assert await free(bench.lane, "k") is Freed.AWAKE
    [before, second] = await bench.queued()
    assert before == first and await bench.state("k") == {"job": second}


# -- move: the list of servers was changed


@pytest.fixture
async def wide(bench: Workbench, redis_url: str) -> AsyncIterator[Lane]:
    """The lane after a second server was added; `MOVED` belongs there now."""
    servers = Servers([redis_url, redis_url.removesuffix("/0") + "/1"], 32)
    lane = Lane(servers, WAKES, lease=LEASE, renew_every=NEVER, partitions=32)
    yield lane
    await lane.close()
    await servers.close()


def moved_key(lane: Lane) -> str:
    return next(f"k{n}" for n in range(1000) if lane.servers.of_key(f"k{n}") is lane.servers.all[1])


async def mail_there(lane: Lane, key: str) -> list[tuple[int, bytes]]:
    found: Any = await lane.servers.all[1].client.zrange(keys.mail("turns", key), 0, -1, withscores=True)
    return [(int(score), payload) for payload, score in found]


async def test_a_key_moves_with_all_of_its_mail_and_leaves_nothing(bench: Workbench, wide: Lane) -> None:
    key, count = moved_key(wide), MAIL_AT_ONCE + 2
    await asyncio.gather(*(bench.put(key, seq) for seq in range(1, count + 1)))
    assert await move(wide, wide.servers.all[0], key)
    assert await mail_there(wide, key) == [(seq, f"m{seq}".encode()) for seq in range(1, count + 1)]
    assert await bench.residue() == []
    assert await wide.servers.all[1].client.exists(keys.state("turns", key))


async def test_a_key_that_a_worker_holds_is_not_moved_before_its_lease_ends(bench: Workbench, wide: Lane) -> None:
    key = moved_key(wide)
    await bench.put(key, 1)
    await bench.lease()
    await bench.hurry(key)
    assert not await move(wide, wide.servers.all[0], key)
    assert await bench.mail(key) == [(1, b"m1")] and await mail_there(wide, key) == []
    assert near(await bench.due(key), LEASE.total_seconds())
    await bench.expire(key)
    assert await move(wide, wide.servers.all[0], key)
    assert await mail_there(wide, key) == [(1, b"m1")] and await bench.residue() == []


async def test_mail_that_its_mailbox_numbered_gets_a_new_number_in_the_same_order(bench: Workbench, wide: Lane) -> None:
    key = moved_key(wide)
    old = [FIRST_MAILBOX_SEQ, FIRST_MAILBOX_SEQ + 1]
    for seq in old:
        await bench.put(key, seq)
    assert await move(wide, wide.servers.all[0], key)
    there = await mail_there(wide, key)
    assert [payload for _, payload in there] == [f"m{seq}".encode() for seq in old]
    assert there[0][0] > old[1] and there[1][0] > there[0][0]


async def test_mail_without_a_proper_number_is_left_behind(bench: Workbench, wide: Lane) -> None:
    key = moved_key(wide)
    await bench.put(key, 1)
    await bench.client.zadd(keys.mail("turns", key), {b"garbage": 1.5})
    assert await move(wide, wide.servers.all[0], key)
    assert await mail_there(wide, key) == [(1, b"m1")] and await bench.residue() == []


# -- dissolve: a queue that nobody serves


async def test_the_wakes_of_an_unserved_queue_are_made_anew_waiting_or_popped(bench: Workbench) -> None:
    for key in ("a", "b", "c"):
        await bench.put(key, 1)
    popped = await bench.pop()
    old = await bench.queued()
    await bench.client.rename(QUEUE, queue_key("turns-9"))
    await bench.client.rename(f"{QUEUE}:intermediate", f"{queue_key('turns-9')}:intermediate")
    assert await dissolve(bench.lane, bench.server, "turns-9", 10) == 3
    assert [await bench.status(str(job_id)) for job_id in (popped, *old)] == [None] * 3
    assert sorted([(await bench.lease()).key for _ in range(3)]) == ["a", "b", "c"]
    assert await dissolve(bench.lane, bench.server, "turns-9", 10) == 0


async def test_an_unserved_queue_is_emptied_a_part_at_a_time(bench: Workbench) -> None:
    for key in ("a", "b", "c"):
        await bench.put(key, 1)
    await bench.client.rename(QUEUE, queue_key("turns-9"))
    assert [await dissolve(bench.lane, bench.server, "turns-9", 2) for _ in range(3)] == [2, 1, 0]


async def test_a_job_that_runs_is_not_forgotten_with_its_queue(bench: Workbench) -> None:
    await bench.put("a", 1)
    lease = await bench.lease()
    await bench.client.rpush(queue_key("turns-9"), lease.wake.id)
    assert await dissolve(bench.lane, bench.server, "turns-9", 10) == 1
    assert await bench.status(lease.wake.id) == "started"
    assert (await bench.state("a"))["token"] == lease.token and await bench.queued() == []


async def test_a_job_that_names_no_key_wakes_nobody(bench: Workbench) -> None:
    await bench.client.hset(JOB_PREFIX + "x", mapping={"data": "anything", "status": "queued"})
    await bench.client.rpush(queue_key("turns-9"), "x")
    assert await dissolve(bench.lane, bench.server, "turns-9", 10) == 0
    assert await bench.status("x") is None


# -- abandon: jobs of dead workers, for RQ's readers


async def test_a_job_whose_heartbeat_ended_is_given_up_for_a_day_and_others_are_left_alone(bench: Workbench) -> None:
    for key in ("a", "b", "c"):
        await bench.put(key, 1)
    dead, ended, living = [await bench.lease() for _ in range(3)]
    await ended.acknowledge([1], limit=1)
    late = {f"{lease.wake.id}:{lease.wake.execution}": 1 for lease in (dead, ended)}
    await bench.client.zadd(running_key("turns-0"), {**late, "no execution": 1})
    assert await bench.lane.abandon(bench.server, "turns-0", 10) == 3
    assert [await bench.status(lease.wake.id) for lease in (dead, ended, living)] == ["failed", "finished", "started"]
    left = [entry.decode() for entry in await bench.client.zrange(running_key("turns-0"), 0, -1)]
    assert left == [f"{living.wake.id}:{living.wake.execution}"]
    seconds, _ = await bench.client.time()
    [(job_id, until)] = await bench.client.zrange(failed_key("turns-0"), 0, -1, withscores=True)
    assert job_id.decode() == dead.wake.id and near(until - seconds, FAILURE_TTL_SECONDS)
    assert near(await bench.client.ttl(JOB_PREFIX + dead.wake.id), FAILURE_TTL_SECONDS)


async def test_jobs_of_dead_workers_are_given_up_a_part_at_a_time(bench: Workbench) -> None:
    await bench.client.zadd(running_key("turns-0"), {f"j{n}:e": n for n in range(1, 4)})
    assert [await bench.lane.abandon(bench.server, "turns-0", 2) for _ in range(3)] == [2, 1, 0]


# -- session lock: several keys talk to one session


async def ticket(bench: Workbench, token: str, ms: int = LEASE_MS) -> list[object]:
    answer: list[object] = await bench.server.call(TICKET, [keys.session_lock("s")], [token, ms])
    return answer


async def test_the_oldest_ticket_has_the_session_and_knows_who_waits(bench: Workbench) -> None:
    assert await ticket(bench, "a") == [1]
    assert await ticket(bench, "b") == [0]
    assert await ticket(bench, "c") == [0]
    first, *waiting = await ticket(bench, "a")
    assert first == 1 and sorted(map(str, waiting)) == ["b'b'", "b'c'"]
    assert near(await bench.client.pttl(keys.session_lock("s")) / 1000, LEASE.total_seconds())


async def test_who_gives_the_session_back_and_wants_it_again_stands_behind_all_who_wait(bench: Workbench) -> None:
    for token in ("a", "b", "c"):
        await ticket(bench, token)
    await bench.client.hdel(keys.session_lock("s"), "a")
    assert await ticket(bench, "a") == [0]
    assert await ticket(bench, "c") == [0]
    assert (await ticket(bench, "b"))[0] == 1


async def test_a_ticket_that_nobody_renewed_holds_nobody_up(bench: Workbench) -> None:
    lock = keys.session_lock("s")
    await bench.client.hset(lock, mapping={"dead": "1:1", "garbage": "no ticket"})
    assert await ticket(bench, "a") == [1]
    assert list(await bench.client.hgetall(lock)) == [b"a"]


async def test_a_ticket_is_kept_for_one_lease_time(bench: Workbench) -> None:
    await ticket(bench, "a")
    seconds, _ = await bench.client.time()
    number, until = (await bench.client.hget(keys.session_lock("s"), "a")).decode().split(":")
    assert number == "1" and near(int(until) / 1000 - seconds, LEASE.total_seconds() + 1)


@pytest.mark.parametrize(("waits", "expired", "unaware"), [(False, False, 1), (True, False, 0), (False, True, 0)])
async def test_a_holder_that_waits_for_no_session_does_not_know_of_the_lock(
    bench: Workbench, waits: bool, expired: bool, unaware: int
) -> None:
    assert await bench.server.call(UNAWARE, [state("k")], ["another"]) == 0  # nobody holds it
    await bench.put("k", 1)
    assert await bench.server.call(UNAWARE, [state("k")], ["another"]) == 0
    lease = await bench.lease()
    if expired:
        await bench.expire("k")
    tokens = ["another", lease.token] if waits else ["another"]
    assert await bench.server.call(UNAWARE, [state("k")], tokens) == unaware


class Routes:
    """What the journal knows of keys: the session that each talks to."""

    def __init__(self, **session_of: str) -> None:
        self._session_of = session_of

    async def route(self, key: str) -> dict[str, str] | None:
        return {"session_id": self._session_of[key]} if key in self._session_of else None


def a_session(id: str, *joined: str) -> Session:
    return Session(id, 1, 0, 0, Window(None, 10), facts={JOINED + key: "1" for key in joined})


async def a_lock(bench: Workbench, **session_of: str) -> SessionLock:
    await bench.put("mine", 1)
    return SessionLock(await bench.lease(), Routes(**session_of), renew_seconds=3600)  # type: ignore[arg-type]


async def locked(bench: Workbench) -> list[str]:
    return [name for name in await bench.residue() if name in map(keys.session_lock, ("s1", "s2", "s3"))]


async def test_a_session_that_no_other_key_talks_to_is_not_locked(bench: Workbench) -> None:
    lock = await a_lock(bench)
    assert not await lock.follow(a_session("s1")) and not await lock.follow(a_session("s1", "mine"))
    assert await locked(bench) == []
    await lock.give_back()


async def test_a_key_holds_the_lock_of_the_session_that_it_talks_to_and_no_other(bench: Workbench) -> None:
    lock = await a_lock(bench)
    assert await lock.follow(a_session("s1", "mine", "other"))
    assert not await lock.follow(a_session("s1", "mine", "other"))  # it need not be loaded again
    assert await locked(bench) == [keys.session_lock("s1")]
    assert await lock.follow(a_session("s2", "other"))
    assert await locked(bench) == [keys.session_lock("s2")]
    assert not await lock.follow(a_session("s3"))
    assert await locked(bench) == []
    assert await lock.follow(a_session("s1", "other"))
    await lock.give_back()
    await lock.give_back()
    assert await locked(bench) == []


async def test_a_key_that_knows_of_no_lock_is_waited_for_while_it_talks_to_the_session(bench: Workbench) -> None:
    lock = await a_lock(bench, other="s1")
    await bench.put("other", 1)
    unaware = await bench.lease()
    following = asyncio.ensure_future(lock.follow(a_session("s1", "other")))
    async with asyncio.timeout(60):
        while not await locked(bench):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not following.done()
        await unaware.acknowledge([1], limit=1)
        assert await following
    await lock.give_back()


@pytest.mark.parametrize("talks_to", [{"other": "s2"}, {}])
async def test_a_key_that_talks_to_another_session_by_now_is_not_waited_for(
    bench: Workbench, talks_to: dict[str, str]
) -> None:
    lock = await a_lock(bench, **talks_to)
    await bench.put("other", 1)
    await bench.lease()
    async with asyncio.timeout(60):
        assert await lock.follow(a_session("s1", "other"))
    await lock.give_back()


# -- what a stop does to the turn of a lease


async def test_a_stop_ends_the_turn_that_answers_what_came_before_it_once(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease, ended = await bench.lease(), []
    lease.drop_until(50)  # no agent runs
    assert not lease.cut_short
    lease.turn_begins(101, lambda: ended.append("late"))
    lease.drop_until(100)
    assert ended == [] and not lease.cut_short
    lease.turn_ends()
    lease.turn_begins(100, lambda: ended.append("early"))
    lease.drop_until(7)  # an older signal: what it brought before still stands
    assert ended == ["early"] and lease.cut_short and lease.drop_until_ms == 100
    lease.drop_until(100)
    assert ended == ["early"]
    lease.turn_begins(200, lambda: ended.append("next"))
    assert not lease.cut_short
    lease.turn_ends()
    lease.drop_until(300)
    assert ended == ["early"] and not lease.cut_short


async def test_a_stop_is_said_on_the_channel_of_the_worker_that_holds_the_key(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    heard = bench.server.heard("rq:pubsub:test")
    listening = asyncio.ensure_future(anext(heard))
    async with asyncio.timeout(60):
        while dict(await bench.client.pubsub_numsub("rq:pubsub:test")) != {b"rq:pubsub:test": 1}:
            await asyncio.sleep(0.01)
        stopped = await stop(bench.lane, "k", 7, 10)
        said = await listening
    await heard.aclose()  # type: ignore[attr-defined]
    assert stopped is not None and stopped.running and stopped.mail == (b"m1",)
    assert lease.wake.id.encode() in said and b"stop-turn" in said and b'"7"' in said


async def test_a_stop_gives_back_no_more_mail_than_was_asked_for(bench: Workbench) -> None:
    assert await stop(bench.lane, "k", 7, 10) is None
    for seq in (1, 2, 3):
        await bench.put("k", seq)
    stopped = await stop(bench.lane, "k", 7, 2)
    assert stopped is not None and stopped.mail == (b"m1", b"m2")


# -- what is counted while a key is held


async def test_an_outage_is_kept_with_the_mail_that_it_delays(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(spent=False, outage=True)
    seconds, _ = await bench.client.time()
    held = await bench.state("k")
    assert held["attempts"] == "0" and near(seconds - int(held["outage"]) / 1000 + SLACK_S, SLACK_S)
    await bench.client.hset(state("k"), "outage", int(held["outage"]) - 60_000)
    again = await bench.lease()
    assert timedelta(minutes=1) <= again.outage_before(1) < timedelta(minutes=1, seconds=SLACK_S)
    assert again.outage_before(2) == timedelta(0)
    await again.release(spent=False, outage=True)
    assert int((await bench.state("k"))["outage"]) == int(held["outage"]) - 60_000  # since the first


async def test_an_outage_is_forgotten_with_its_mail(bench: Workbench) -> None:
    for seq in (2, 3):
        await bench.put("k", seq)
    await (await bench.lease()).release(spent=False, outage=True)
    await bench.put("k", 1)
    lease = await bench.lease()
    assert lease.outage_before(1) == timedelta(0) and "outage" not in await bench.state("k")
    await lease.release(spent=False, outage=True)
    lease = await bench.lease()
    assert lease.outage_before(1) < timedelta(seconds=SLACK_S) and "outage" in await bench.state("k")
    await lease.acknowledge([1], limit=1)
    assert lease.outage_before(2) == timedelta(0) and "outage" not in await bench.state("k")


async def test_what_failed_before_an_attempt_began_counts_as_an_attempt_that_failed(bench: Workbench) -> None:
    await bench.put("k", 1)
    await (await bench.lease()).release(spent=True)
    await (await bench.lease()).release(spent=True)  # this lease began none
    assert (await bench.lease()).attempts_before(1) == (2, 2)


async def test_a_lease_under_which_nothing_was_said_looks_without_taking(bench: Workbench) -> None:
    for seq in (1, 2, 3):
        await bench.put("k", seq)
    lease = await bench.lease()
    assert [(one.seq, one.payload) for one in await lease.look(2)] == [(1, b"m1"), (2, b"m2")]
    assert [seq for seq, _ in await bench.mail("k")] == [1, 2, 3]


async def test_a_start_that_is_repeated_with_a_spent_wake_finds_the_key_held(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    started = await bench.start_job(lease.wake.id)
    assert (started.claim, started.lease) == (Claim.HELD, None) and started.wake is not None
    assert await bench.lane.recover("k") is Recovered.NOTHING
    assert await bench.client.zcard(DUE) == 1


async def test_a_busy_mode_that_was_told_counts_until_the_key_talks_to_another_session(bench: Workbench) -> None:
    await bench.put("k", 1)
    lease = await bench.lease()
    counts: list[BusyMode | None] = []
    lease.told(BusyMode.STEER)  # it came before the session was loaded
    lease.talks_to("ses_a")
    counts.append(lease.busy_mode)
    lease.told(BusyMode.REJECT)
    lease.talks_to("ses_a")
    counts.append(lease.busy_mode)
    lease.talks_to("ses_b")
    counts.append(lease.busy_mode)
    assert counts == [BusyMode.STEER, BusyMode.REJECT, None]

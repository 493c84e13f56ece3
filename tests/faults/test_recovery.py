"""What survives when servers, network and clocks fail, when messages are poison, and how soon it goes on.

Each test is a deployment of real processes, as in test_faults.py.
"""

from __future__ import annotations

import time
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.faults.checks import UNBROKEN, check
from tests.faults.databases import ground_at, open_ground, small_disk
from tests.faults.evidence import Evidence, Row, gather, query
from tests.faults.load import Message
from tests.faults.plan import Faults
from tests.faults.recovery import running_when_killed
from tests.faults.staged import PATIENCE, begun, deployed, post, send
from tests.faults.trial import Trial, quiescence, run_trial, stall_clock
from tests.support.cluster import until


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_the_servers_the_network_and_the_clocks(
    database: str, tmp_path: Path
) -> None:
    trial = Trial(
        seed=5,
        messages=1_200,
        keys=240,
        seconds=15,
        housekeepers=2,
        mishaps=("hang=1", "crash=2", "raise=1"),
        mishap_share=0.01,
        faults=Faults(
            restarts=1,
            tail_cuts=(1.0,),
            failovers=2,
            network=6,
            outages=(3.0,),
            full_disks=(2.0,),
            storms=1,
            clock_steps=4,
        ),
    )
    with small_disk(trial.messages) as disk:
        home = disk.directory if disk is not None else tmp_path
        async with open_ground(database, home, proxied=True) as ground:
            outcome = await run_trial(trial, tmp_path, ground, disk)
    assert outcome.broken == UNBROKEN
    assert outcome.faults["writes so lost"] >= 1
    assert sum(outcome.skipped.values()) == (disk is None)  # and nothing else was left out


async def test_all_poison_is_set_aside_with_its_cause_and_every_key_goes_on(database_url: str, tmp_path: Path) -> None:
    trial = Trial(
        seed=4,
        lease_seconds=4.0,  # a machine that stalls shall not take leases away: that would be one more attempt
        messages=1_200,
        keys=100,
        seconds=4,
        poison=("raise", "refuse", "crash", "hang"),
        poison_share=0.01,
        settings={"turn_timeout_seconds": 4.0},
    )
    outcome = await run_trial(trial, tmp_path, ground_at(database_url))
    assert outcome.broken == UNBROKEN
    buried = [row for row in outcome.evidence.inbox if row["state"] == "dead"]
    assert len(buried) == 12  # three of each kind
    assert max(own_attempts(row["id"], outcome.evidence, trial.lease_seconds) for row in buried) <= 3
    assert max(seconds_from_first_attempt(row, outcome.evidence) for row in buried) <= 30 + outcome.stall_seconds


async def test_nothing_is_lost_doubled_or_reordered_while_sentinels_name_one_primary_after_the_other(
    tmp_path: Path,
) -> None:
    trial = Trial(
        seed=7, messages=800, keys=160, seconds=15, faults=Faults(failovers=2, demotions=1, kills=6, sentinels=True)
    )
    async with open_ground("sqlite", tmp_path) as ground:
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.broken == UNBROKEN
    assert outcome.faults["failover by Sentinels"] == 2


async def test_a_killed_workers_keys_go_on_elsewhere_within_the_lease_time_and_two_seconds(
    database_url: str, tmp_path: Path
) -> None:
    lease_seconds = 10.0  # the default
    async with deployed(tmp_path, database_url, lease_seconds=lease_seconds, heartbeat_seconds=3.0) as (
        cluster,
        platform,
    ):
        async with stall_clock() as stall:
            [victim] = await cluster.add("work")
            sent = await send(cluster, "hang=1", keys=20)
            await until(lambda: begun(cluster) == 20, PATIENCE, "every turn has begun")
            await cluster.add("work")
            victim.kept = False
            killed = cluster.kill(victim)
            await killed.ended.wait()
            await quiescence(cluster, database_url)
            evidence = gather(sent, database_url, platform, cluster, leases_forgotten=False)
        assert killed.ended_at is not None
        assert len(running_when_killed(killed, evidence)) == 20
        died_ms = (killed.ended_at + time.time() - time.monotonic()) * 1000
        claimed = [row["claimed_at"] for row in query(database_url, "SELECT claimed_at FROM turns")]
        assert len(claimed) == 20 and min(claimed) > died_ms
        assert max(claimed) - died_ms <= (lease_seconds + 2 + stall.longest) * 1000
        assert check(evidence) == UNBROKEN


async def test_a_worker_paused_for_three_lease_times_commits_nothing_stale_and_is_counted(
    database_url: str, tmp_path: Path
) -> None:
    lease_seconds = 1.5
    async with deployed(tmp_path, database_url, lease_seconds=lease_seconds, heartbeat_seconds=0.4) as (
        cluster,
        platform,
    ):
        [sleeper] = await cluster.add("work")
        sent = await send(cluster, "linger=6000", keys=10)
        await until(lambda: begun(cluster) == 10, PATIENCE, "every turn has begun")
        paused_at = time.monotonic()
        zombie = cluster.pause(sleeper)
        await cluster.add("work")
        await quiescence(cluster, database_url)  # the other worker has answered everything
        await until(lambda: time.monotonic() > paused_at + 3 * lease_seconds, PATIENCE, "three lease times")
        committed = query(database_url, "SELECT id, worker FROM turns")
        assert len(committed) == 10 and not any(f"-{zombie.pid}-" in row["worker"] for row in committed)
        assert cluster.metric("keyturn_fence_rejected_total") == 0
        with cluster.valkeys.stands_still():  # so that nobody can tell the zombie that its leases are gone
            cluster.resume(zombie)
            await until(lambda: cluster.metric("keyturn_fence_rejected_total") >= 10, PATIENCE, "each is counted")
        await quiescence(cluster, database_url)
        assert query(database_url, "SELECT id, worker FROM turns") == committed
        assert check(gather(sent, database_url, platform, cluster, leases_forgotten=False)) == UNBROKEN


async def test_attempts_at_a_message_that_redis_lost_are_counted_nevertheless(
    database_url: str, tmp_path: Path
) -> None:
    async with deployed(tmp_path, database_url, lease_seconds=1.0, heartbeat_seconds=0.25, backoff_seconds=0.1) as (
        cluster,
        platform,
    ):
        sent = await post(cluster, [Message("k", 1, "n=1 crash=2", 0.0), Message("k", 2, "n=2", 0.0)])
        cluster.redis.zremrangebyscore(f"kt:turns:mail:{sent[0].session_key}", 1, 1)
        await cluster.add("work")
        await quiescence(cluster, database_url, PATIENCE)
        evidence = gather(sent, database_url, platform, cluster, leases_forgotten=False)
    assert [note.attempt for note in evidence.noted if note.message == sent[0].id and note.event == "begin"] == [
        1,
        2,
        3,
    ]
    assert check(evidence) == UNBROKEN


async def test_what_redis_lost_comes_back_though_the_clocks_of_the_deployment_disagree_by_an_hour(
    database_url: str, tmp_path: Path
) -> None:
    async with deployed(tmp_path, database_url) as (cluster, platform):
        [housekeeper] = cluster.of("housekeep")
        for error_seconds in (-3600.0, 3600.0):
            sent = await send(cluster, "", keys=10, names=f"k{error_seconds:.0f}-")
            cluster.set_clock(housekeeper, error_seconds)
            await cluster.valkeys.flush()
            [worker] = await cluster.add("work")
            await quiescence(cluster, database_url, PATIENCE)
            await cluster.stop(worker)
        assert len(platform.callbacks) == 2 * len(sent)


def own_attempts(id: str, evidence: Evidence, lease_seconds: float) -> int:
    """How many attempts at a message came to an end or ended by its own doing, not with a neighbour's crash.

    One that failed a moment before such a crash may not have been written down; then its key went on only when the lease
    had run out.
    """
    ended = {note.turn: note.at for note in evidence.noted if note.over}
    crashes = [note for note in evidence.noted if note.event == "crash"]
    begins = [note for note in evidence.noted if note.message == id and note.event == "begin"]
    own = 0
    for note, following in zip_longest(begins, begins[1:]):
        guilty = any(crash.pid == note.worker and crash.message != id and crash.at >= note.at for crash in crashes)
        over = ended.get(note.turn)
        given_back = over is not None and (following is None or following.at - over < lease_seconds)
        own += given_back or not guilty
    return own


def seconds_from_first_attempt(row: Row, evidence: Evidence) -> float:
    first = min(note.at for note in evidence.noted if note.message == row["id"])
    return float(row["finished_at"] / 1000 - (time.time() - time.monotonic()) - first)

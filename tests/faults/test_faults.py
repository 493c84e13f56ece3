"""What survives when processes are stopped, killed and paused, and Redis is emptied.

Each test is a deployment of real processes under load. `./run faults` runs the same harness for as long as you like.
One trial has 10,000 messages and 100 kills. The others have as many faults as they need and fewer messages: enough that every fault
finds turns under way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.failpoints import ACTIONS
from tests.faults.checks import UNBROKEN
from tests.faults.databases import ground_at, open_ground
from tests.faults.plan import Faults
from tests.faults.points import ARMED
from tests.faults.steps import counted
from tests.faults.trial import Trial, run_trial
from tests.support.platform import random_trouble


async def test_turns_stay_in_order_one_at_a_time_and_cost_one_attempt_while_workers_start_and_stop(
    tmp_path: Path,
) -> None:
    trial = Trial(seed=1, messages=3_000, keys=200, seconds=10, faults=Faults(stops=10), lease_seconds=12)
    async with open_ground("sqlite", tmp_path) as ground:  # the next test does the same, and worse, on both databases
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.broken == UNBROKEN
    assert {row["attempts"] for row in outcome.evidence.inbox} == {1}


async def test_nothing_is_lost_doubled_or_reordered_when_a_worker_is_killed_every_second(
    database_url: str, tmp_path: Path
) -> None:
    trial = Trial(
        seed=2,
        messages=3_000,
        keys=200,
        seconds=24,
        faults=Faults(kills=30, storms=1, roles=("work",)),
        idempotent=False,
        trouble=random_trouble(2, 0.02),
    )
    outcome = await run_trial(trial, tmp_path, ground_at(database_url))
    assert outcome.faults["SIGKILL work"] == 30
    assert outcome.broken == UNBROKEN


async def test_nothing_is_lost_doubled_or_reordered_whatever_is_killed_paused_or_emptied_and_wherever(
    database_url: str, tmp_path: Path
) -> None:
    trial = Trial(
        seed=3,
        messages=10_000,
        keys=2_000,
        seconds=30,
        zipf=0.8,
        silent_share=0.5,
        flood=300,
        housekeepers=2,
        faults=Faults(kills=100, pauses=20, flushes=3, failpoints=1, pause_leases=(1.2, 2.0)),
        lease_seconds=1.0,
        trouble=random_trouble(3, 0.02),
    )
    outcome = await run_trial(trial, tmp_path, ground_at(database_url))
    assert sum(outcome.faults.values()) >= 123
    assert set(outcome.fired) == {(point, action) for point in ARMED for action in ACTIONS}
    assert outcome.broken == UNBROKEN


async def test_ag11_no_finished_step_is_repeated_and_no_effect_happens_twice_while_workers_are_killed_and_paused(
    database_url: str, tmp_path: Path
) -> None:
    faults = Faults(kills=20, pauses=5, roles=("work",))
    trial = Trial(seed=7, messages=600, keys=100, seconds=20, tools_share=1.0, faults=faults, sleep_ms=5)
    outcome = await run_trial(trial, tmp_path, ground_at(database_url))
    assert outcome.faults["SIGKILL work"] == 20
    assert outcome.broken == UNBROKEN
    calls = counted(outcome.evidence)
    assert calls["read"] == calls["keyed"] == 600 and 600 - calls["may have happened"] <= calls["write"] <= 600


async def test_nothing_is_lost_doubled_or_stuck_while_redis_refuses_falls_silent_is_demoted_and_grows(
    tmp_path: Path,
) -> None:
    """Three servers share the keys. The first is full, read-only, silent and demoted; another is away; the third is new."""
    faults = Faults(
        kills=10,
        silences=3,
        full=(3.0,),
        read_only=(3.0,),
        demotions=2,
        servers=3,
        servers_away=(5.0,),
        reshapes=2,
    )
    trial = Trial(seed=4, messages=2_000, keys=400, seconds=40, zipf=0.8, housekeepers=2, faults=faults)
    async with open_ground("sqlite", tmp_path) as ground:
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.faults == {
        "PARTITIONS or the list of Redis servers changed": 2,
        "Redis full for 3 s": 1,
        "Redis read-only for 3 s": 1,
        "connections to Redis silent for good": 3,
        "one Redis server of several away for 5 s": 1,
        "primary demoted without a cut": 2,
        **{name: count for name, count in outcome.faults.items() if name.startswith("SIGKILL")},
    }
    assert outcome.broken == UNBROKEN


async def test_nothing_is_lost_doubled_or_reordered_while_a_redis_server_is_added_and_another_drained_and_taken_out(
    tmp_path: Path,
) -> None:
    faults = Faults(kills=5, pauses=2, servers=4, drain=True)
    trial = Trial(seed=8, messages=1_500, keys=300, seconds=30, zipf=0.8, housekeepers=2, faults=faults)
    async with open_ground("sqlite", tmp_path) as ground:
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.faults["Redis server added"] == outcome.faults["Redis server drained and taken out"] == 1
    assert outcome.broken == UNBROKEN


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_nothing_is_lost_while_the_database_blinks_or_refuses_writes_rows_are_locked_and_the_provider_is_away(
    database: str, tmp_path: Path
) -> None:
    faults = Faults(kills=5, blinks=5, read_only_databases=(3.0,), locks=(2.0, 3.0), providers_away=(5.0,))
    trial = Trial(seed=6, messages=1_200, keys=400, seconds=15, flood=200, housekeepers=2, faults=faults)
    async with open_ground(database, tmp_path) as ground:
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.faults["provider away for 5 s"] == 1
    assert outcome.broken == UNBROKEN
    assert {row["state"] for row in outcome.evidence.inbox} <= {"answered", "superseded"}

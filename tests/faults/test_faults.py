"""What survives when processes are stopped, killed and paused, and Redis is emptied.

Each test is a deployment of real processes under load. `./run faults` runs the same harness for as long as you like.
"""

from __future__ import annotations

from pathlib import Path

from shared.failpoints import ACTIONS
from tests.faults.checks import UNBROKEN
from tests.faults.databases import ground_at, open_ground
from tests.faults.plan import Faults
from tests.faults.points import POINTS
from tests.faults.trial import Trial, run_trial
from tests.support.platform import random_trouble


async def test_turns_stay_in_order_one_at_a_time_and_cost_one_attempt_while_workers_start_and_stop(
    tmp_path: Path,
) -> None:
    trial = Trial(seed=1, messages=10_000, keys=200, seconds=10, faults=Faults(stops=10), lease_seconds=12)
    async with open_ground("sqlite", tmp_path) as ground:  # the next test does the same, and worse, on both databases
        outcome = await run_trial(trial, tmp_path, ground)
    assert outcome.broken == UNBROKEN
    assert {row["attempts"] for row in outcome.evidence.inbox} == {1}


async def test_nothing_is_lost_doubled_or_reordered_when_a_worker_is_killed_every_second(
    database_url: str, tmp_path: Path
) -> None:
    trial = Trial(
        seed=2,
        messages=10_000,
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
        housekeepers=2,
        faults=Faults(kills=100, pauses=20, flushes=3, failpoints=1, pause_leases=(1.2, 2.0)),
        lease_seconds=1.0,
        trouble=random_trouble(3, 0.02),
    )
    outcome = await run_trial(trial, tmp_path, ground_at(database_url))
    assert sum(outcome.faults.values()) >= 123
    assert set(outcome.fired) == {(point, action) for point in POINTS for action in ACTIONS}
    assert outcome.broken == UNBROKEN

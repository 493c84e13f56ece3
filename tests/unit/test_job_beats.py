"""Running jobs are reported to RQ in time, and no more often than needed."""

from __future__ import annotations

from typing import Any, cast

from workers.process.job_beats import JOBS_AT_ONCE, JobBeats
from workers.process.wakes import HeldWake


def held(*names: str) -> dict[str, HeldWake]:
    return {name: cast(Any, name) for name in names}


def test_a_job_is_reported_three_times_while_its_entry_is_good_and_not_with_every_heartbeat() -> None:
    beats = JobBeats(90)
    reported = [second for second in range(100, 191) if [*beats.due(held("a"), float(second))]]
    assert reported == [130, 160, 190]  # its start has reported it at 100


def test_what_was_not_reported_is_due_again_and_what_has_ended_is_not() -> None:
    beats, names = JobBeats(90), [str(n) for n in range(2 * JOBS_AT_ONCE + 1)]
    running = held(*names)
    assert [*beats.due(running, 0.0)] == []
    portions = beats.due(running, 30.0)
    assert [*map(str, next(portions))] == names[:JOBS_AT_ONCE]
    next(portions)  # the first is reported; Redis does not answer to this one
    del portions
    del running["150"]
    [again] = beats.due(running, 31.0)
    assert [*map(str, again)] == [name for name in names[JOBS_AT_ONCE:] if name != "150"]


def test_a_job_that_ends_while_others_are_reported_is_left_out() -> None:
    beats, running = JobBeats(90), held(*(str(n) for n in range(JOBS_AT_ONCE + 2)))
    assert [*beats.due(running, 0.0)] == []
    sizes = []
    for portion in beats.due(running, 30.0):
        sizes.append(len(portion))
        running.pop(str(JOBS_AT_ONCE), None)
    assert sizes == [JOBS_AT_ONCE, 1]

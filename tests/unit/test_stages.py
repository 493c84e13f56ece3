"""A stage is timed, reaches its failpoints in order, and its log lines name the message."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from shared import log, metrics
from shared.failpoints import Injected
from shared.stages import STAGES, correlate, stage


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The failpoints that were reached, in order."""
    points: list[str] = []
    monkeypatch.setattr("shared.stages.reach", points.append)
    return points


def times(name: str) -> float:
    """How often a stage was timed."""
    [family] = metrics.STAGE.collect()
    return next(s.value for s in family.samples if s.name.endswith("_count") and s.labels["stage"] == name)


def test_a_stage_is_timed_between_its_failpoints(reached: list[str]) -> None:
    before = times("commit")
    with stage("commit"):
        reached.append("inside")
    assert reached == ["commit.before", "inside", "commit.after"]
    assert times("commit") == before + 1


def test_a_stage_that_raises_is_timed_and_its_second_failpoint_is_not_reached(reached: list[str]) -> None:
    before = times("agent")
    with suppress(ValueError), stage("agent"):
        raise ValueError
    assert reached == ["agent.before"]
    assert times("agent") == before + 1


def test_a_stage_does_not_begin_where_its_first_failpoint_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(point: str) -> None:
        raise Injected(point)

    monkeypatch.setattr("shared.stages.reach", fails)
    with pytest.raises(Injected, match="send"), stage("send"):
        pytest.fail("it began")


def test_a_stage_without_failpoints_or_without_a_time_has_the_other(reached: list[str]) -> None:
    with stage("accept"):
        pass
    assert reached == []
    with stage("load"):
        pass
    assert reached == ["load.before", "load.after"]


def test_every_timed_stage_is_entered_here_and_no_failpoint_belongs_to_two() -> None:
    assert {name for name, watched in STAGES.items() if watched.seconds is not None} == set(metrics.SECONDS)
    points = [point for watched in STAGES.values() for point in watched.points or ()]
    assert len(points) == len(set(points))


async def test_a_task_is_about_the_message_that_it_named_last_and_its_neighbour_is_not() -> None:
    async def about(id: str) -> str | None:
        correlate("before")
        await asyncio.sleep(0)
        correlate(id)
        await asyncio.sleep(0)
        return log.correlation.get()

    first, second = await asyncio.gather(about("a"), about("b"))
    assert (first, second) == ("a", "b")

"""What a worker does with what it hears on its RQ channel, where anybody may publish."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
import pytest

from shared.busy import BusyMode
from workers.process.duty import Duty
from workers.process.rq_commands import run_command
from workers.process.wakes import Wakes


class Noted:
    """Wakes that only remember what they were told."""

    def __init__(self) -> None:
        self.duty = Duty(asyncio.Event())
        self.told: list[Any] = []

    def kill(self, job_id: str) -> None:
        self.told.append(("kill", job_id))

    def drop_until(self, job_id: str, at_ms: int) -> None:
        self.told.append(("drop", job_id, at_ms))

    def tell(self, job_id: str, mode: BusyMode | None, after: int) -> None:
        self.told.append(("tell", job_id, mode, after))


def after(said: Any) -> Noted:
    wakes = Noted()
    run_command(said if isinstance(said, bytes) else orjson.dumps(said), cast(Wakes, wakes))
    return wakes


def test_a_job_is_stopped_by_its_id() -> None:
    assert after({"command": "stop-job", "job_id": "j1"}).told == [("kill", "j1")]


@pytest.mark.parametrize("at_ms", ["17", 17])
def test_a_turn_is_stopped_with_what_was_said_until_a_time(at_ms: Any) -> None:
    assert after({"command": "stop-turn", "job_id": "j1", "at_ms": at_ms}).told == [("drop", "j1", 17)]


@pytest.mark.parametrize(("mode", "heard"), [("steer", BusyMode.STEER), ("", None), (None, None), (7, None)])
def test_a_turn_is_told_that_mail_came_and_which_mode_counts(mode: Any, heard: BusyMode | None) -> None:
    for number, counts in (("7", 7), (7, 7), (None, 0), ("-1", 0), ("soon", 0)):
        said = {"command": "look-turn", "job_id": "j1", "mode": mode, "after": number}
        assert after(said).told == [("tell", "j1", heard, counts)]


@pytest.mark.parametrize(
    "said",
    [
        b"\xff",
        b"no json",
        b"7",
        b"[]",
        b"[" * 100_000,
        {"command": None},
        {"command": "kill-horse"},
        {"command": "shutdown"},
        {"command": "stop-job"},
        {"command": "look-turn", "job_id": 7},
        {"command": "stop-job", "job_id": 7},
        {"command": "stop-turn", "job_id": 7, "at_ms": "17"},
        {"command": "stop-turn", "job_id": "j1"},
        {"command": "stop-turn", "job_id": "j1", "at_ms": "-1"},
        {"command": "stop-turn", "job_id": "j1", "at_ms": "soon"},
    ],
)
def test_what_is_no_command_does_nothing(said: Any) -> None:
    wakes = after(said)
    assert wakes.told == [] and not wakes.duty.stopping.is_set()


def test_a_worker_takes_wakes_unless_it_is_stopping_or_suspended() -> None:
    duty = Duty(asyncio.Event())
    assert duty.takes_wakes
    duty.suspended = True
    assert not duty.takes_wakes
    duty.suspended = False
    duty.stopping.set()
    assert not duty.takes_wakes

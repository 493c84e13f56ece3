"""Failpoints: where they have to be, and what each action does. That each of them was reached is for the runs to show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from shared import failpoints
from shared.failpoints import ACTIONS, Injected, arm, fired
from tests.faults.points import ARMED, POINTS, REACHED_BY_A_TEST, ROOT, modules, operations, points

# Every stage of a message's path, and what an operator does that must survive a crash, each with the file that is it.
STAGES = {
    "accept": "shared/door.py",
    "start": "workers/process/wakes.py",
    "load": "workers/turn/open.py",
    "fetch": "workers/turn/files.py",
    "agent": "workers/turn/run.py",
    "step": "workers/turn/steps.py",
    "isolated": "workers/agents/remote_tools.py",
    "ask": "workers/upkeep/asks.py",
    "stream": "workers/turn/live_text.py",
    "commit": "workers/turn/conclude.py",
    "publish": "workers/turn/acknowledge.py",
    "acknowledge": "shared/lane/lease.py",
    "release": "shared/lane/lease.py",
    "renew": "shared/lane/renewal.py",
    "deliver": "workers/delivery/deliver.py",
    "buttons": "workers/delivery/button_removal.py",
    "housekeep": "workers/upkeep/due.py",
    "move": "shared/lane/elsewhere.py",
    "spool": "producers/spool.py",
    "pair": "producers/pairing.py",
    "pause": "shared/pauses.py",
    "pieces": "producers/pieces.py",
    "preview": "workers/delivery/preview.py",
    "quota": "producers/settling.py",
    "schedule": "workers/upkeep/schedules.py",
    "task": "shared/tasks/starting.py",
    "limits": "workers/limits/admission.py",
    "steer": "workers/turn/busy/inbox.py",
    "interrupt": "workers/turn/busy/watch.py",
    "reject": "workers/turn/busy/reject.py",
    "notice": "workers/turn/busy/notice.py",
    "backup": "shared/operating/backup.py",
    "restore": "shared/operating/restoring.py",
}
# An operator runs these, sees how they end, and repeats them.
COMMANDS = ("keyturn/cli/", "shared/operating/")
FOUND = {str(path): points(tree) for path, tree in modules()}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_failpoint(stage: str) -> None:
    assert [point for point in FOUND[STAGES[stage]] if point.startswith(f"{stage}.")]


def test_a_file_that_moves_messages_has_a_failpoint() -> None:
    moving = {str(path) for path, tree in modules() if operations(tree)}
    assert {path for path in moving if not FOUND[path] and not path.startswith(COMMANDS)} == set()


def test_a_failpoint_that_no_run_need_reach_is_reached_by_a_test() -> None:
    assert set(ARMED) | set(REACHED_BY_A_TEST) == set(POINTS)
    assert [point for point, file in REACHED_BY_A_TEST.items() if f'"{point}"' not in (ROOT / file).read_text()] == []


def test_each_failpoint_has_a_name_of_its_own_that_begins_with_its_stage() -> None:
    assert [point for point, count in Counter(POINTS).items() if count > 1] == []
    assert {point.partition(".")[0] for point in POINTS} == set(STAGES)


def test_without_the_variable_reaching_a_failpoint_calls_nothing() -> None:
    assert failpoints.VARIABLE not in os.environ
    assert failpoints.reach.__code__.co_code == (lambda point: None).__code__.co_code


def test_an_armed_failpoint_goes_off_as_often_as_it_was_armed(tmp_path: Path) -> None:
    reach = _armed(tmp_path, failpoints.RAISE, times=2)
    for _ in range(2):
        with pytest.raises(Injected):
            reach("commit.before")
    reach("commit.before")
    assert fired(tmp_path) == [("commit.before", "raise", os.getpid())] * 2


def test_a_failpoint_that_is_not_armed_does_nothing(tmp_path: Path) -> None:
    reach = _armed(tmp_path, failpoints.RAISE)
    reach("commit.after")
    assert fired(tmp_path) == []


def test_a_chance_decides_when_it_goes_off_and_not_whether(tmp_path: Path) -> None:
    arm(tmp_path, "commit.before", failpoints.RAISE, percent=5)
    reach = failpoints.looking(str(tmp_path))

    def reach_for_ever() -> None:
        while True:
            reach("commit.before")

    with pytest.raises(Injected):
        reach_for_ever()
    assert len(fired(tmp_path)) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_does_what_its_name_says(action: str, tmp_path: Path) -> None:
    arm(tmp_path, "commit.before", action)
    program = "from shared.failpoints import reach; reach('commit.before'); print('went on')"
    environment = os.environ | {failpoints.VARIABLE: str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if action == failpoints.PAUSE:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            process.send_signal(signal.SIGCONT)
        output, errors = process.communicate()
    assert (process.returncode, output, "Injected" in errors) == {
        "kill": (-signal.SIGKILL, "", False),
        "pause": (0, "went on\n", False),
        "raise": (1, "", True),
    }[action]
    assert fired(tmp_path) == [("commit.before", action, process.pid)]


def _armed(directory: Path, action: str, times: int = 1) -> Callable[[str], None]:
    for number in range(times):
        arm(directory, "commit.before", action, number=number)
    return failpoints.looking(str(directory))

"""Named points at which the fault harness may break this process. Without FAILPOINTS set, reaching one does nothing.

FAILPOINTS names a directory. A file `<point>/<number>.<action>.<percent>` in it arms the point once, with that chance each
time it is reached; as many files, as many times, over all processes together. Whoever reaches the point takes a file by
moving it to `fired/`, so what is there is what happened, and then does what it says:

kill    SIGKILL to itself            pause   SIGSTOP to itself, until somebody sends SIGCONT
raise   an error that nobody expects

It is no setting: a deployment has no use for it.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

VARIABLE = "FAILPOINTS"
KILL, PAUSE, RAISE = ACTIONS = ("kill", "pause", "raise")
FIRED = "fired"


class Injected(Exception):
    """Raised at a failpoint: stands for the error that nobody thought of."""


def arm(directory: Path, point: str, action: str, *, number: int = 0, percent: int = 100) -> None:
    """Let the next process that reaches `point` do `action`; with a chance of `percent`, if it is not to be the first."""
    (directory / FIRED).mkdir(parents=True, exist_ok=True)
    (directory / point).mkdir(exist_ok=True)
    (directory / point / f"{number}.{action}.{percent}").touch()


def fired(directory: Path) -> list[tuple[str, str, int]]:
    """Point, action and process id of everything that went off."""
    names = [path.name.split("~") for path in (directory / FIRED).glob("*")]
    return [(point, file.split(".")[1], int(pid)) for point, file, pid in names]


def _nothing(point: str) -> None:
    pass


def _look(directory: str) -> Callable[[str], None]:
    def reach(point: str) -> None:
        try:
            armed = sorted(os.listdir(f"{directory}/{point}"))
        except FileNotFoundError:
            return
        for file in armed:
            _, action, percent = file.split(".")
            if random.randrange(100) >= int(percent):
                continue
            try:
                os.rename(f"{directory}/{point}/{file}", f"{directory}/{FIRED}/{point}~{file}~{os.getpid()}")
            except FileNotFoundError:  # another process was faster
                continue
            _act(point, action)
            return

    return reach


def _act(point: str, action: str) -> None:
    if action == RAISE:
        raise Injected(point)
    os.kill(os.getpid(), signal.SIGKILL if action == KILL else signal.SIGSTOP)


reach: Callable[[str], None] = _look(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing

"""Named points at which the fault harness may break this process. Without FAILPOINTS set, reaching one does nothing.

FAILPOINTS names a directory. A file `<point>/<number>.<action>.<percent>` in it arms the point once, with that chance each
time it is reached; as many files, as many times, over all processes together. Whoever reaches the point takes a file by
moving it to `fired/`, so what is there is what happened, and then does what it says:

kill    SIGKILL to itself            pause   SIGSTOP to itself, until somebody sends SIGCONT
raise   an error that nobody expects

`flags`, mapped by everybody, has a byte per point that is not 0 where there may be something: looking into directories
each time would slow the processes down that are to be tested. It is no setting: a deployment has no use for it.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import zlib
from collections.abc import Callable
from pathlib import Path

VARIABLE = "FAILPOINTS"
KILL, PAUSE, RAISE = ACTIONS = ("kill", "pause", "raise")
_FIRED, _FLAGS = "fired", "flags"
_SLOTS = 65_536


class Injected(Exception):
    """Raised at a failpoint: stands for the error that nobody thought of."""


def arm(directory: Path, point: str, action: str, *, number: int = 0, percent: int = 100) -> None:
    """Let the next process that reaches `point` do `action`; with a chance of `percent`, if it is not to be the first."""
    (directory / point).mkdir(parents=True, exist_ok=True)
    (directory / point / f"{number}.{action}.{percent}").touch()
    _flags(str(directory))[_slot(point)] = 1


def fired(directory: Path) -> list[tuple[str, str, int]]:
    """Point, action and process id of everything that went off."""
    names = [path.name.split("~") for path in (directory / _FIRED).glob("*")]
    return [(point, file.split(".")[1], int(pid)) for point, file, pid in names]


def _nothing(point: str) -> None:
    pass


def looking(directory: str) -> Callable[[str], None]:
    """What `reach` is where that directory is in force."""
    os.makedirs(f"{directory}/{_FIRED}", exist_ok=True)
    flags = _flags(directory)
    slots: dict[str, int] = {}

    def reach(point: str) -> None:
        slot = slots.get(point) or slots.setdefault(point, _slot(point))
        if flags[slot]:
            flags[slot] = 0  # before looking: who arms it from now on sets it again
            for file in sorted(os.listdir(f"{directory}/{point}")):
                flags[slot] = 1
                if _taken(directory, point, file):
                    _act(point, file.split(".")[1])
                    return

    return reach


def _taken(directory: str, point: str, file: str) -> bool:
    if random.randrange(100) >= int(file.split(".")[2]):
        return False
    try:
        os.rename(f"{directory}/{point}/{file}", f"{directory}/{_FIRED}/{point}~{file}~{os.getpid()}")
    except FileNotFoundError:  # another process was faster
        return False
    return True


def _act(point: str, action: str) -> None:
    if action == RAISE:
        raise Injected(point)
    os.kill(os.getpid(), signal.SIGKILL if action == KILL else signal.SIGSTOP)


def _flags(directory: str) -> mmap.mmap:
    with open(f"{directory}/{_FLAGS}", "a+b") as file:
        file.truncate(_SLOTS)
        return mmap.mmap(file.fileno(), _SLOTS)


def _slot(point: str) -> int:
    return zlib.crc32(point.encode()) % _SLOTS


reach: Callable[[str], None] = looking(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing

"""Finds and ends everything that a process started, also what left its session. Linux only: elsewhere nothing is found."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_ENDED = ("Z", "X")
KILL_ROUNDS = 100  # of looking for what was started while others were killed


def adopt_orphans() -> None:
    """From here on, a descendant whose parent ended becomes a child of this process, so that it can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(of: int) -> list[int]:
    """The processes that a process started, and that those started. Processes that have ended are left out."""
    children: dict[int, list[int]] = {}
    for entry in _processes():
        with suppress(OSError, ValueError, IndexError):  # it may end while we look
            # `pid (name) state parent …`: a name may hold spaces and brackets
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in _ENDED:
                children.setdefault(int(parent), []).append(int(entry.name))
    found, to_visit = list[int](), [of]
    while to_visit:
        next_ones = children.get(to_visit.pop(), [])
        found += next_ones
        to_visit += next_ones
    return found


def kill_descendants(of: int) -> None:
    """Kill everything that a process started. What appears meanwhile is killed, too."""
    for _ in range(KILL_ROUNDS):
        found = descendants(of)
        if not found:
            return
        for one in found:
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)


def _processes() -> list[Path]:
    try:
        return [Path("/proc", name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []

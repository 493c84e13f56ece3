"""How the threads of a process share the interpreter. Set once, where a long-running process starts."""

from __future__ import annotations

import sys

# A thread that needs the interpreter asks for it after this long; Python's own figure is 5 ms. SQLite's writer needs it
# between two statements. Measured beside an event loop that was busy for 20 ms at a time: nine of ten commits took at most
# 125 ms instead of 140 ms.
SWITCH_SECONDS = 0.001


def share_with_threads() -> None:
    """Let no thread wait for long while the event loop is busy."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))

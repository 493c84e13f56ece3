"""Whether this process was started in a terminal, and the terminal is still there: closing it sends SIGHUP."""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Whether the terminal that controls this process can be reached."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True

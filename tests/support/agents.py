"""Small agents that tests name by AGENT=tests.support.agents:…"""

from __future__ import annotations

import os
import signal
import time

from shared.errors import Permanent


def obey(text: str) -> str:
    """Do what the text says, in whatever process this is."""
    word, _, rest = text.partition(" ")
    if word == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "raise":
        raise RuntimeError(rest)
    if word == "refuse":
        raise Permanent(rest)
    if word == "hang":
        with open(rest, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)
    return str(os.getpid())

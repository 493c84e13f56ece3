"""Keyturn's modules come first: a package of the same name in the caller's directory is never imported instead.

Our top-level packages have everyday names (`shared`, `workers`, `producers`), and a user may well have folders of these
names beside keyturn.toml. So the working directory, where AGENT=module:object may lie, comes last on the import path of
every process: of the command, of the children that `up` starts, and of those that run turns isolated.
"""

from __future__ import annotations

import os
import sys


def command_of(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules in this Python; `-P` keeps the working directory off its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def allow_working_directory() -> None:
    """Let AGENT=module:object name a module beside keyturn.toml: it is looked for after everything installed.

    A process calls this once, before it loads an agent; calling it again changes nothing.
    """
    here = os.getcwd()
    sys.path[:] = [*(place for place in sys.path if place not in ("", ".", here)), here]

"""Keyturn's modules come first: a package of the same name in the caller's directory is never imported instead."""

from __future__ import annotations

import os
import sys


def command_of(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules in this Python; `-P` keeps the working directory off its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def allow_working_directory() -> None:
    """Let AGENT=module:object name a module beside keyturn.toml: it is looked for after everything installed."""
    sys.path.append(os.getcwd())

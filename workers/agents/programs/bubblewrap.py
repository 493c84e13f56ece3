"""Runs a program in bubblewrap: it sees the disk read-only, writes to one directory, and has no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from shared.errors import ConfigurationError
from shared.value import value

PROGRAM = "bwrap"


@value
class Sandbox:
    """How a program is locked in. Directories in `hidden` look empty to it."""

    path: str
    has_network: bool = False
    hidden: tuple[str, ...] = ()

    def wrapped(self, arguments: Sequence[str], directory: str) -> tuple[str, ...]:
        """The command line that runs these arguments inside, where only that directory can be written."""
        network = ["--share-net"] if self.has_network else []
        hidden = [word for place in self.hidden for word in ("--tmpfs", os.path.expanduser(place))]
        return (
            *(self.path, "--unshare-all", *network, "--die-with-parent", "--new-session"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *hidden),
            *("--bind", directory, directory, "--chdir", directory, "--", *arguments),
        )


def open_sandbox(setting: str, *, has_network: bool, hidden: tuple[str, ...]) -> Sandbox:
    """The sandbox of this machine. Where there is none, nothing runs: a ConfigurationError says so."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise ConfigurationError(f"{setting}=bubblewrap: there is no {PROGRAM} on PATH; install the package bubblewrap")
    return Sandbox(path, has_network, hidden)

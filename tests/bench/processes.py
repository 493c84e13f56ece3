"""Child processes under measurement: their CPU time with their own children's, and the most memory they had. Linux."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.embedded import child

TICKS = os.sysconf("SC_CLK_TCK")
LINES_SHOWN = 3
START_SECONDS, STOP_SECONDS = 60.0, 15


class Measured:
    """A running child. What it prints goes to a file, whose end is shown if it dies."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], output: Path, cwd: Path) -> None:
        self._output = output
        with output.open("ab") as file:
            self.process = child.start(
                command, dies_by=signal.SIGKILL, env=dict(env), stdout=file, stderr=subprocess.STDOUT, cwd=cwd
            )

    def cpu_seconds(self) -> float:
        """User and system time, its own and that of children it has waited for."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / TICKS

    def peak_mb(self) -> float:
        """The most resident memory so far."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def check(self) -> None:
        """RuntimeError, with its last words, if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"ended with {self.process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return " / ".join(line.strip()[:200] for line in lines[-LINES_SHOWN:])

    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def ready_url(self) -> str:
        """Where it listens, once it says so in a line `ready http…`."""
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"^ready (http\S+)\s", self.printed(), re.MULTILINE)):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready within {START_SECONDS:.0f} s: {self.last_words()}")
            time.sleep(0.02)
        return found[1]

    def stop(self) -> None:
        child.stop(self.process, signal.SIGTERM, STOP_SECONDS)

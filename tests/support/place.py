"""`keyturn` commands as processes in a directory of their own, as a person starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shared.embedded import child
from tests.support.redis_roles import of_process

ROOT = Path(__file__).parents[2]
KEYTURN = (
    sys.executable,
    "-P",
    "-m",
    "keyturn.cli",
)  # like the installed command, it imports nothing from where it runs
PATIENCE_SECONDS = 120.0  # longer than any machine is slow


class Place:
    """A directory with nothing but what the test puts there. Everything that was started in it ends with `close`."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment |= {"HOME": str(directory), "PYTHONPATH": str(ROOT), "KEYTURN_PARTITIONS": "2", "USER": "ann"}
        self.environment |= {f"KEYTURN_{name.upper()}": value for name, value in settings.items()}

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """A command up to its end."""
        return subprocess.run(
            [*KEYTURN, *arguments],
            cwd=self.directory,
            env=of_process([*KEYTURN, *arguments], self.with_settings(**settings)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def start(self, name: str, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """A command that goes on; its output is in the files `name`.out and `name`.err."""
        with (self.directory / f"{name}.out").open("wb") as out, (self.directory / f"{name}.err").open("wb") as err:
            process = child.start(
                [*KEYTURN, *arguments],
                dies_by=signal.SIGTERM,
                cwd=self.directory,
                env=of_process([*KEYTURN, *arguments], self.with_settings(**settings)),
                stdout=out,
                stderr=err,
            )
        self._processes.append(process)
        return process

    def up(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """`keyturn up`, ready."""
        process = self.start("up", "up", "--port", "0", *arguments, **settings)
        self.until(lambda: self.said("up").startswith("ready "), "up", process)
        return process

    def said(self, name: str, kind: str = "out") -> str:
        path = self.directory / f"{name}.{kind}"
        return path.read_text() if path.exists() else ""

    def until(
        self, condition: Callable[[], object], name: str = "up", process: subprocess.Popen[bytes] | None = None
    ) -> None:
        """Wait for something to become true, while the process lives; the failure shows what `name` said."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            gone = process is not None and process.poll() is not None
            assert not gone and time.monotonic() < deadline, self.said(name, "err")
            time.sleep(0.02)

    def with_settings(self, **settings: str) -> dict[str, str]:
        return {**self.environment, **{f"KEYTURN_{name.upper()}": value for name, value in settings.items()}}

    def close(self) -> None:
        for process in self._processes:
            child.stop(process, signal.SIGTERM, 60)

"""An agent that waits until it is told, and real worker processes that run it.

The agent speaks through files, so that it is heard whatever becomes of Redis: a turn begins with a line in `begun` and goes
on when a file named after its text appears. A text that begins with `now` waits for nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from shared.agent.turn import Result, Turn
from shared.embedded import child
from shared.messages import Entry, Reply
from tests.support.redis_roles import of_process

ROOT = Path(__file__).parents[2]
VARIABLE = "TOLD_DIRECTORY"
PATIENCE_SECONDS = 90.0  # of the tests: longer than any machine is slow


class ToldAgent:
    async def run(self, turn: Turn) -> Result:
        directory = Path(os.environ[VARIABLE])
        text = turn.mail[0].text
        _note(directory / "begun", f"{text} {turn.attempt} {os.getpid()}")
        try:
            while not text.startswith("now") and not (directory / f"go-{text}").exists():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            _note(directory / "cancelled", text)
            raise
        return Result((Entry("assistant", f"done {text}"),), (Reply(f"done {text}"),))


agent = ToldAgent()


def _note(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


class Told:
    """Worker processes with such an agent. All of them end with `close`."""

    def __init__(self, directory: Path, redis_url: str, database_url: str, **settings: object) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        values = {"redis_url": redis_url, "database_url": database_url, "agent": f"{__name__}:agent", **settings}
        (directory / "metrics").mkdir()
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "PYTHONPATH": str(ROOT),
            "PROMETHEUS_MULTIPROC_DIR": str(directory / "metrics"),
            VARIABLE: str(directory),
            **{f"KEYTURN_{name.upper()}": str(value) for name, value in values.items()},
        }

    # -- processes

    def work(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`keyturn work`."""
        return self.run("-m", "keyturn.cli", "work", *arguments)

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A Python process that ends with us."""
        with (self.directory / "log").open("ab") as log:
            process = child.start(
                [sys.executable, *arguments],
                dies_by=signal.SIGKILL,
                cwd=self.directory,
                env=of_process(arguments, self._environment),
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def rq(self, *arguments: str) -> str:
        """What RQ's own command line says."""
        command = [sys.executable, "-c", "from rq.cli import main; main()", *arguments]
        ended = subprocess.run(command, env=self._environment, cwd=self.directory, capture_output=True, timeout=120)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    # -- what the agent did, and may do

    def begun(self) -> list[tuple[str, int, int]]:
        """(text, attempt, process id) of every turn that began."""
        lines = (line.split() for line in self._lines("begun"))
        return [(text, int(attempt), int(pid)) for text, attempt, pid in lines]

    def texts(self) -> list[str]:
        return [text for text, _, _ in self.begun()]

    def cancelled(self) -> list[str]:
        return self._lines("cancelled")

    def go(self, *texts: str) -> None:
        for text in texts:
            (self.directory / f"go-{text}").touch()

    def counted(self, name: str) -> float:
        """A counter, added up over all processes."""
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(self.directory / "metrics"))  # type: ignore[no-untyped-call]
        return sum(s.value for family in registry.collect() for s in family.samples if s.name == name)

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []


async def until(condition: Callable[[], object], told: Told | None = None) -> None:
    """Wait for something to become true; if it does not, the log says what happened instead."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, told.log() if told is not None else "it did not become true"
        await asyncio.sleep(0.02)


async def ended(process: subprocess.Popen[bytes], told: Told) -> int:
    """The exit code of a process that is about to end."""
    await until(lambda: process.poll() is not None, told)
    assert process.returncode is not None
    return process.returncode


async def answered(pipe: Any, ids: Sequence[str], told: Told) -> None:
    """Wait until these inbounds have been answered."""
    for id in ids:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (row := await pipe.store.journal.find(id)) is None or row["state"] != "answered":
            assert time.monotonic() < deadline, told.log()
            await asyncio.sleep(0.02)

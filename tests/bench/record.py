"""What a worker under measurement leaves behind: one line per job, in shared memory that the bench watches.

Needs nothing but the standard library, because the peers' environments have nothing else of ours. A line costs the worker
a copy of 41 bytes and no system call: a write would give up the interpreter's lock, which hurts whoever uses threads. Each
process has a file of its own: eight bytes that count, then the lines. Times are CLOCK_MONOTONIC, the same for everybody.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WIDTH = 41
MOST_LINES = 250_000
VARIABLE = "BENCH_RECORD"  # no KEYTURN_ name: those are settings, and unknown ones are refused
STAGGER_VARIABLE = "BENCH_STAGGER_SECONDS"  # how much later than the one before each worker begins
_COUNT = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Line:
    at: float  # seconds
    key: int
    n: int


class _Lines:
    """A growing list of lines. Forked children add to the same one, one at a time."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_COUNT.size + MOST_LINES * WIDTH)  # sparse: what is not written takes no room
            self._memory = mmap.mmap(file.fileno(), 0)
        self._lock = threading.Lock()

    def add(self, key: int, n: int) -> None:
        line = b"%020d %09d %09d\n" % (time.monotonic_ns(), key, n)
        with self._lock:
            [count] = _COUNT.unpack_from(self._memory)
            start = _COUNT.size + count * WIDTH
            self._memory[start : start + WIDTH] = line
            _COUNT.pack_into(self._memory, 0, count + 1)  # only now can it be seen


class Record:
    """The worker's side."""

    def __init__(self, path: Path) -> None:
        self._jobs, self._retries = (_Lines(_file(path, kind, str(os.getpid()))) for kind in ("jobs", "retries"))

    @classmethod
    def from_environment(cls) -> Record:
        return cls(Path(os.environ[VARIABLE]))

    def job(self, key: int, n: int) -> None:
        self._jobs.add(key, n)

    def retry(self, key: int, n: int) -> None:
        """A try that found the key locked and did nothing."""
        self._retries.add(key, n)


class Lags:
    """The worker's side: how late its event loop was, in microseconds."""

    def __init__(self) -> None:
        self._lines = _Lines(_file(Path(os.environ[VARIABLE]), "lags", str(os.getpid())))

    def add(self, us: int) -> None:
        self._lines.add(us, 0)


def wait_for_sign() -> None:
    """Say that this worker could begin, and wait until it may. Start-up ends here, for everybody alike."""
    path = Path(os.environ[VARIABLE])
    _file(path, "ready", str(os.getpid())).touch()
    while not _file(path, "go", "now").exists():
        time.sleep(0.001)
    standing = sorted(path.parent.glob(f"{path.name}.ready.*"))
    time.sleep(float(os.environ.get(STAGGER_VARIABLE, "0")) * standing.index(_file(path, "ready", str(os.getpid()))))


class Watch:
    """The bench's side. The path is new for every measurement."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ready(self) -> int:
        """How many workers could begin."""
        return len(self._files("ready"))

    def go(self) -> None:
        _file(self._path, "go", "now").touch()

    def jobs(self) -> int:
        return sum(_count(path) for path in self._files("jobs"))

    def by_process(self) -> list[int]:
        """How many jobs each of the processes did."""
        return [_count(path) for path in self._files("jobs")]

    def retries(self) -> int:
        return sum(_count(path) for path in self._files("retries"))

    def signs_of_life(self) -> int:
        """Grows with every job, and while an event loop that is looked at goes round."""
        return self.jobs() + sum(_count(path) for path in self._files("lags"))

    def lags_ms(self) -> list[float]:
        """How late the event loop was each time that it looked, the least first."""
        return sorted(line.key / 1000 for line in self.lines("lags"))

    def lines(self, kind: str = "jobs") -> Iterator[Line]:
        """The jobs so far, in the order of time."""
        found: list[bytes] = []
        for path in self._files(kind):
            count = _count(path)
            with path.open("rb") as file:
                file.seek(_COUNT.size)
                found += file.read(count * WIDTH).splitlines()
        for text in sorted(found):
            at, key, n = text.split()
            yield Line(int(at) / 1e9, int(key), int(n))

    def violations(self) -> int:
        """How many messages ran after a later one of their key, or twice."""
        newest: dict[int, int] = {}
        late = 0
        for line in self.lines():
            late += line.n <= newest.get(line.key, -1)
            newest[line.key] = max(line.n, newest.get(line.key, -1))
        return late

    def _files(self, kind: str) -> list[Path]:
        return list(self._path.parent.glob(f"{self._path.name}.{kind}.*"))


def _file(path: Path, kind: str, which: str) -> Path:
    return path.with_name(f"{path.name}.{kind}.{which}")


def _count(path: Path) -> int:
    with path.open("rb") as file:
        head = file.read(_COUNT.size)
    return int(_COUNT.unpack(head)[0]) if len(head) == _COUNT.size else 0

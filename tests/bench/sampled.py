"""A worker that is watched from within: `python -m tests.bench.sampled OUTPUT work …` runs that keyturn command.

Whenever the event loop's thread has used some more CPU time, a signal notes where it stands. So waiting costs nothing, and
C code counts for who called it. Other threads cannot be looked at that way: of them the CPU time alone is noted. Linux.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import orjson

EVERY_NS = 1_000_000  # the kernel looks at its own tick, so it may be four times that
_CLOCK_THREAD_CPUTIME_ID, _SIGEV_THREAD_ID = 3, 4
REST = "event loop and the rest"
# Innermost first: the first frame that is named here says what its thread was doing.
STAGES = (
    ("log", "shared/log.py", ""),
    ("log", "/structlog/", ""),
    ("metrics", "/prometheus_client/", ""),
    ("codec", "shared/codec.py", ""),
    ("agent", "tests/bench/agent.py", ""),
    ("agent", "workers/agents/", ""),
    ("redis: write and read", "shared/redis_servers.py", ""),
    ("1 pop", "workers/process/fetcher.py", ""),
    ("1 pop", "workers/process/room.py", ""),
    ("2 start and claim", "shared/lane/lane.py", "start"),
    ("3 load", "workers/turn/open.py", ""),
    ("3 load", "shared/store/transcript.py", "load"),
    ("5 commit", "shared/store/commits.py", ""),
    ("5 commit", "shared/store/commit_rows.py", ""),
    ("5 commit", "shared/store/batch.py", ""),
    ("5 commit", "workers/turn/conclude.py", ""),
    ("6 acknowledge", "shared/lane/lease.py", "acknowledge"),
    ("6 acknowledge", "workers/turn/acknowledge.py", ""),
    ("6 acknowledge", "shared/lane/lane.py", "put_soon"),
    ("6 acknowledge", "workers/delivery/publish.py", ""),
    ("7 deliver: send", "workers/delivery/webhook.py", ""),
    ("7 deliver: outbox", "shared/store/outbox.py", ""),
    ("7 deliver", "workers/delivery/", ""),
    ("heartbeat and renewal", "workers/process/rq_worker.py", "_beat"),
    ("heartbeat and renewal", "shared/lane/renewal.py", "_renew_held"),
    ("SQL driver", "shared/store/database/sqlite/", ""),
    ("SQL driver", "shared/store/database/postgres/", ""),
    ("4 turn", "workers/turn/", ""),
    ("4 turn", "workers/jobs.py", ""),
    ("worker", "workers/process/", ""),
)


class Sampler:
    """Begins when told to, in the thread that it is to watch."""

    def __init__(self) -> None:
        self.samples: Counter[tuple[str, str]] = Counter()  # by stage and function
        self._began_ns = self._ended_ns = 0
        self._threads: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        self._before, self._began_ns = _other_threads(), time.thread_time_ns()
        signal.signal(signal.SIGPROF, self._note)
        _signal_by_cpu_time(signal.SIGPROF, EVERY_NS)

    def cpu_ns(self) -> list[tuple[str, str, int]]:
        """What was used, by stage and function: the thread's time, shared out by the samples, and the other threads'."""
        each = (self._ended_ns - self._began_ns) / max(self.samples.total(), 1)
        found = [(stage, function, int(count * each)) for (stage, function), count in self.samples.items()]
        found += [(f"thread {name}", "", ns - self._before.get(name, 0)) for name, ns in self._threads.items()]
        return found

    def _note(self, _: int, frame: FrameType | None) -> None:
        if frame is not None:
            self.samples[_stage(frame), _function(frame)] += 1
        self._ended_ns = time.thread_time_ns()
        self._threads |= _other_threads()


def _stage(frame: FrameType) -> str:
    at: FrameType | None = frame
    while at is not None:
        path, name = at.f_code.co_filename, at.f_code.co_name
        for stage, part, function in STAGES:
            if part in path and function in ("", name):
                return stage
        at = at.f_back
    return REST


def _function(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_code.co_name}"


def _other_threads() -> dict[str, int]:
    """CPU time of every thread but the event loop's, by its name without the number."""
    used: Counter[str] = Counter()
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.native_id is None:
            continue
        try:
            schedule = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
        except OSError:  # it has ended
            continue
        used[thread.name.rstrip("0123456789_-")] += int(schedule.split()[0])
    return dict(used)


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread_id", ctypes.c_int),
        ("room", ctypes.c_char * 44),
    )


def _signal_by_cpu_time(number: signal.Signals, every_ns: int) -> None:
    """Send this thread the signal each time it has used so much CPU time. What setitimer does, but for one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    event = _Event(signo=number, notify=_SIGEV_THREAD_ID, thread_id=threading.get_native_id())
    timer = ctypes.c_void_p()
    if libc.timer_create(_CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(timer)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    times = (ctypes.c_long * 4)(0, every_ns, 0, every_ns)  # every so often, and so long until the first
    if libc.timer_settime(timer, 0, ctypes.byref(times), None) != 0:
        raise OSError(ctypes.get_errno(), "timer_settime")


def main(output: Path, command: list[str]) -> None:
    from tests.bench.working import main as work

    sampler = Sampler()
    try:
        work(command, sampler.begin)
    finally:
        output.write_bytes(orjson.dumps(sampler.cpu_ns()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

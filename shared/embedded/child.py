"""Child processes that do not outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ports = random.SystemRandom()  # nobody seeds it


def start(
    command: Sequence[str], *, dies_by: signal.Signals = signal.SIGTERM, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own. On Linux it gets `dies_by` when this process ends, however it ends."""

    parent = os.getpid()
    # Tied to the thread that forks: call this from the main thread.
    return subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: die_with(parent, dies_by), **options)


def die_with(parent: int, by: signal.Signals) -> None:
    """From here on, this process gets `by` when its parent ends, or has. Elsewhere than on Linux, nothing happens."""
    if sys.platform == "linux":
        if (
            by is not signal.SIGKILL
        ):  # a handler that was inherited would only note it, and a new program never reads the note
            signal.signal(by, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
        if os.getppid() != parent:  # it ended before it could be watched
            os.kill(os.getpid(), by)


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """In the block, a descendant whose parent ended becomes a child of this process, which then has to wait for it. Linux only."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def stop(process: subprocess.Popen[bytes], by: signal.Signals, wait_seconds: float) -> None:
    """Ask a child to end; kill it if it has not by then."""
    if process.poll() is not None:
        return
    process.send_signal(by)
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nobody has, below those that outgoing connections take: it stays free until a server is there."""
    while True:
        port = _ports.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port

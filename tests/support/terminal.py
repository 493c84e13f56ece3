"""A program in a terminal of its own: what is typed reaches it as from a keyboard, what it shows is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

PATIENCE_SECONDS = 120.0  # longer than any machine is slow
CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"
_CURSOR_REQUEST, _CURSOR_AT_THE_BOTTOM = b"\x1b[6n", b"\x1b[40;1R"
_LOCAL_FLAGS = 3  # in the list that tcgetattr returns
_PASTE_IS_MARKED = b"\x1b[?2004h"
_CONTROL = re.compile(r"\x1b\[[0-9;?>]*[ -/]*[@-~]|\x1b[=>]|\r|\x07")


class Terminal:
    """Use as a context: the program is killed at the end, if it still runs."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: dict[str, str], columns: int = 100) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.raw = b""
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    @property
    def shown(self) -> str:
        """What was shown so far, without colours and cursor movements."""
        return _CONTROL.sub("", self.raw.decode(errors="replace"))

    @contextmanager
    def watched(self) -> Iterator[list[bool]]:
        """Within it, every look at the terminal notes whether it edits lines itself, as before the program reads."""
        notes: list[bool] = []
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                notes.append(bool(termios.tcgetattr(self._master)[_LOCAL_FLAGS] & termios.ICANON))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield notes
        finally:
            over.set()
            watcher.join()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def paste(self, text: str) -> None:
        """As a terminal does that marks what is pasted."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def until_it_reads(self) -> None:
        """Wait until the program edits lines itself; before, the terminal would."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _PASTE_IS_MARKED not in self.raw:
            assert self._read(deadline), f"it does not read:\n{self.shown[-3000:]}"

    def until(self, text: str, times: int = 1) -> None:
        """Wait until this has been shown so often."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.shown.count(text) < times:
            assert self._read(deadline), f"{text!r} was not shown:\n{self.shown[-3000:]}"

    def ended(self) -> int:
        """Wait until the program ends; its exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on:\n{self.shown[-3000:]}"
            self._read(time.monotonic() + 0.05)
        while self._read(time.monotonic() + 0.2):
            pass
        return self.process.returncode

    def _read(self, deadline: float) -> bool:
        """Whether something was shown before the deadline."""
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            found = os.read(self._master, 65536)
        except OSError:  # nobody holds the other end any more
            return False
        self.raw += found
        if _CURSOR_REQUEST in found:
            os.write(self._master, _CURSOR_AT_THE_BOTTOM)
        return bool(found)

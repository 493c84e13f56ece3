"""A file of log lines as JSON, for `keyturn logs`. Its size is bounded: a full file becomes `<name>.1`, whose lines go.

Several processes may write to one file, such as two workers: each line is one write to its end, and of those that find it
full, one moves it. A line that cannot be written is lost, and nothing else with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from shared.errors import ConfigurationError
from shared.private_directory import make_private_directory

LIMIT_BYTES = 8_000_000  # of one file; there are at most two for each kind of process
SUFFIX = ".jsonl"
OLDER = ".1"  # added to the name of the file that was full
LOOK_BYTES = 65_536  # a process looks at the file after so much of its own
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class LogFile:
    """Where one process writes its lines. Readable by this user only."""

    def __init__(self, directory: Path, process: str, limit: int = LIMIT_BYTES) -> None:
        self._path = directory / f"{_NOT_IN_NAMES.sub('-', process.lower())}{SUFFIX}"
        self._limit = limit
        self._unlooked = 0
        try:
            make_private_directory(directory)
            self._fd = self._open()
        except OSError as error:
            raise ConfigurationError(f"LOG_DIR={directory} cannot be written to: {error.strerror}") from None

    def write(self, line: str) -> None:
        """Add a line. A full disk or a directory that is gone costs the line, never the work that it tells of."""
        data = f"{line}\n".encode(errors="replace")
        with contextlib.suppress(OSError):
            os.write(self._fd, data)
            self._unlooked += len(data)
            if self._unlooked >= min(LOOK_BYTES, self._limit):
                self._unlooked = 0
                self._look()

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _look(self) -> None:
        """Move the file away where it is full, and go on in the one that has its name now."""
        if self._is_current() and os.fstat(self._fd).st_size < self._limit:
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # those that hold the same file wait here; closing it lets go
        if self._is_current():
            os.replace(self._path, self._path.with_name(self._path.name + OLDER))
        old, self._fd = self._fd, self._open()
        os.close(old)

    def _is_current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

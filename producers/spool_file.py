"""One file of a spool: a line of JSON per event, read and written by one process alone.

A lock beside the file keeps other processes out. The kernel releases it when its process ends, however that ends. A line that
a crash cut off is dropped when the file is read: nobody was told that it had been kept.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

import orjson

from producers.heard import Event
from shared.on_disk import sync
from shared.private_directory import make_private_directory


class SpoolFile:
    """A file that this process has locked, until `close`."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> SpoolFile | None:
        """None: another process has it. The file itself need not exist yet."""
        make_private_directory(path.parent)
        lock = open(path.with_suffix(".lock"), "ab", opener=_private)  # noqa: SIM115 (held until `close`)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return cls(path, lock)

    @classmethod
    def open_first_free(cls, path: Path) -> SpoolFile:
        """`x.jsonl`, or the first of `x.1.jsonl`, `x.2.jsonl`… that no other process has."""
        for number in count():
            file = cls.open(path.with_suffix(f".{number}.jsonl") if number else path)
            if file is not None:
                return file
        raise AssertionError("count() does not end")

    def close(self) -> None:
        self._lock.close()

    def read(self) -> list[Event]:
        return list(_events(self.path.read_bytes())) if self.path.exists() else []

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, events: Iterable[Event]) -> None:
        """When this returns, a crash loses none of them."""
        lines = b"".join(map(_line, events))
        is_new = not self.path.exists()
        with open(self.path, "ab", opener=_private) as file:
            file.write(b"\n" + lines)  # a line that a crash cut off before ends here
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            for folder in (self.path.parent, self.path.parent.parent):  # the latter, because the former may be as new
                sync(folder)

    def replace(self, events: Iterable[Event]) -> None:
        """After a crash the file holds these events, or what was there before."""
        if not self.path.exists():
            return
        fresh = self.path.with_suffix(".new")
        with open(fresh, "wb", opener=_private) as file:
            file.write(b"".join(map(_line, events)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _line(event: Event) -> bytes:
    fields: dict[str, Any] = {"ref": event.ref, "fields": event.fields, "chat": event.chat, "broken": event.broken}
    if event.raw is not None:
        fields["raw"] = base64.b64encode(event.raw).decode()
    return orjson.dumps(fields) + b"\n"


def _events(content: bytes) -> Iterator[Event]:
    for line in content.splitlines(keepends=True):
        # A line that a disk spoiled must not hold up the others.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            kept = orjson.loads(line) if line.endswith(b"\n") else {}
            raw = base64.b64decode(kept["raw"]) if "raw" in kept else None
            ref, fields, chat, broken = kept["ref"], kept["fields"], kept["chat"], kept["broken"]
            if isinstance(fields, dict) and all(isinstance(text, str) for text in (ref, chat, broken)):
                yield Event(ref, fields, chat, raw, broken)

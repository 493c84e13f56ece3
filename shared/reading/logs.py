"""Log lines from the files that processes keep, by time: all, or those about one conversation or one message."""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import orjson

from shared.errors import NotFound
from shared.log_file import OLDER, SUFFIX
from shared.redaction import open_redaction
from shared.settings import Settings
from shared.value import value

CHUNK_BYTES = 1 << 20
LONGEST_BYTES = 1 << 20  # of a line: the rest of a longer one is left out
IDS_KEPT = 10_000  # messages of one conversation that are known by their ids
LEVELS = ("debug", "info", "warning", "error", "critical")
_MESSAGE = re.compile(rb'"message":"([^"\\]{1,200})"')

LogLine = Mapping[str, object]


@value
class LogQuery:
    """Which lines are wanted. `keys` are the spellings of one key: hidden ids are logged as hashes. None: all."""

    keys: tuple[str, ...] | None = None
    message: str | None = None
    level: str = "debug"  # and worse


def query_of(settings: Settings, key: str | None, message: str | None, level: str) -> LogQuery:
    """The query for a key as people write it."""
    redaction = open_redaction(settings)
    hidden = redaction.text(key) if redaction is not None and key is not None else key
    keys = tuple(dict.fromkeys(name for name in (key, hidden) if name is not None)) or None
    return LogQuery(keys, message, level)


class LogReader:
    """Reads the files of a directory, and what is added to them. Lines of a file that was moved away meanwhile are not lost."""

    def __init__(self, directory: Path, query: LogQuery) -> None:
        self._directory = directory
        self._filter = _Filter(query)
        self._open: dict[Path, _Tail] = {}

    def last(self, limit: int) -> list[LogLine]:
        """The last lines that match, in order of time; NotFound where there are no files."""
        paths = self._paths()
        if not paths:
            text = (
                f"no log files in {self._directory}: `keyturn up` writes them; others do where KEYTURN_LOG_DIR is set"
            )
            raise NotFound(text)
        older = [_Tail(old) for path in paths if (old := path.with_name(path.name + OLDER)).exists()]
        self._open_new(paths)
        tails = [*older, *self._open.values()]
        if self._filter.learns:  # a line may name its message only, and another file the conversation of that message
            for tail in tails:
                for line in tail.lines():
                    self._filter.learn(line)
                tail.rewind()
        kept = [deque(self._matching(tail), maxlen=limit) for tail in tails]
        for tail in older:
            tail.close()
        return list(heapq.merge(*(sorted(found, key=_time) for found in kept), key=_time))[-limit:]

    def more(self) -> list[LogLine]:
        """The lines that were added since, in order of time."""
        self._open_new(self._paths())
        found: list[LogLine] = []
        for path, tail in list(self._open.items()):
            found += self._matching(tail)
            if tail.was_moved():
                found += self._matching(tail)  # written between the two looks
                tail.close()
                del self._open[path]
        return sorted(found, key=_time)

    def close(self) -> None:
        for tail in self._open.values():
            tail.close()

    def _open_new(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if path not in self._open:
                with suppress(FileNotFoundError):  # it was moved away just now; the next call finds the one after it
                    self._open[path] = _Tail(path)

    def _paths(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{SUFFIX}"))

    def _matching(self, tail: _Tail) -> Iterator[LogLine]:
        for line in tail.lines():
            if (event := self._filter.event(line)) is not None:
                yield event


class _Filter:
    """Tells the lines that are wanted from the others; most of those are not even parsed."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._levels = LEVELS[LEVELS.index(query.level) :]
        self._keys = [_needle(key) for key in query.keys or ()]
        self._ids: set[bytes] = set()

    @property
    def learns(self) -> bool:
        return self._query.keys is not None

    def learn(self, line: bytes) -> None:
        """Note which message a line about the wanted conversation belongs to."""
        if any(key in line for key in self._keys) and len(self._ids) < IDS_KEPT and self._names_key(_parsed(line)):
            self._ids.update(_MESSAGE.findall(line))

    def event(self, line: bytes) -> LogLine | None:
        query = self._query
        if query.message is not None and _needle(query.message) not in line:
            return None
        if self.learns:
            self.learn(line)
            if not any(key in line for key in self._keys) and not self._ids.intersection(_MESSAGE.findall(line)):
                return None
        event = _parsed(line)
        if event is None or event.get("level") not in self._levels or not _has_time(event):
            return None
        if query.message is not None and event.get("message") != query.message:
            return None
        if self.learns and not self._names_key(event) and str(event.get("message")).encode() not in self._ids:
            return None
        return event

    def _names_key(self, event: LogLine | None) -> bool:
        return event is not None and event.get("key") in (self._query.keys or ())


class _Tail:
    """One file, from its beginning on, by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._rest = b""

    def lines(self) -> Iterator[bytes]:
        while chunk := os.read(self._fd, CHUNK_BYTES):
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:LONGEST_BYTES]
            yield from whole

    def rewind(self) -> None:
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._rest = b""

    def was_moved(self) -> bool:
        """Whether another file has the name now, or none."""
        try:
            return os.stat(self._path).st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return True

    def close(self) -> None:
        os.close(self._fd)


def _parsed(line: bytes) -> LogLine | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:  # the half line of a process that was killed, or not ours
        return None
    return event if isinstance(event, dict) else None


def _needle(text: str) -> bytes:
    """A part of every line that says this text. Only its beginning, where the rest may be escaped in two ways."""
    plain = re.match(r"[ !#-\[\]-~]*", text)
    return plain[0].encode() if plain else b""


def _has_time(event: LogLine) -> bool:
    try:
        datetime.fromisoformat(_time(event))
    except ValueError:
        return False
    return True


def _time(event: LogLine) -> str:
    return str(event.get("timestamp", ""))

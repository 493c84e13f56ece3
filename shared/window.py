"""The end of a transcript, as it was read. Rows become entries when somebody looks: most of what a turn loads, few turns need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import overload

import orjson

from shared.messages import Entry

# What Python needs beside the characters, measured with tracemalloc.
ENTRY_BYTES = 150
DATA_BYTES, DATA_BYTES_PER_CHARACTER = 200, 4


class Window(Sequence[Entry]):
    """At most `limit` rows, oldest first: those in `text`, a JSON list of [role, text, data, inbound id], and those since."""

    __slots__ = ("_entries", "_limit", "_since", "_since_size", "_text", "size")

    def __init__(self, text: str | None, limit: int, since: tuple[Entry, ...] = (), since_size: int = 0) -> None:
        self._text = text
        self._limit = limit
        self._since = since
        self._entries: tuple[Entry, ...] | None = None
        self._since_size = since_size
        self.size = since_size + (sys.getsizeof(text) if text else 0)  # about how many bytes it keeps

    def and_then(self, entries: Sequence[Entry]) -> Window:
        """The window after these rows were added."""
        since = (*self._since, *entries)
        size = self._since_size + sum(map(_size, entries))
        if len(since) < self._limit:
            return Window(self._text, self._limit, since, size)
        dropped = len(since) - self._limit
        return Window(None, self._limit, since[dropped:], size - sum(map(_size, since[:dropped])))

    @property
    def entries(self) -> tuple[Entry, ...]:
        if self._entries is None:
            rows = orjson.loads(self._text) if self._text else ()
            every = (*(read_entry(*row) for row in reversed(rows)), *self._since)
            self._entries = every[-self._limit :] if self._limit else ()
        return self._entries

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        return self.entries[index]

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.entries == tuple(other)

    def __hash__(self) -> int:
        return hash(self.entries)


def _size(entry: Entry) -> int:
    """About how many bytes an entry takes."""
    data = DATA_BYTES + DATA_BYTES_PER_CHARACTER * len(repr(entry.data)) if entry.data else 0
    return ENTRY_BYTES + sys.getsizeof(entry.text) + sys.getsizeof(entry.inbound_id) + data


def read_entry(role: str, text: str, data: str, inbound_id: str | None) -> Entry:
    """A transcript row as the database has it."""
    return Entry(role, text, inbound_id, orjson.loads(data) if data != "{}" else {})

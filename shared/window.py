"""The end of a transcript, as it was read. Rows become entries when somebody looks: most of what a turn loads, few turns need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import orjson

from shared.messages import Entry


class Window(Sequence[Entry]):
    """At most `limit` rows, oldest first: those in `text`, a JSON list of [role, text, data, inbound id], and those since."""

    __slots__ = ("_entries", "_limit", "_since", "_text", "size")

    def __init__(self, text: str | None, limit: int, since: tuple[Entry, ...] = (), since_size: int = 0) -> None:
        self._text = text
        self._limit = limit
        self._since = since
        self._entries: tuple[Entry, ...] | None = None
        self.size = len(text or "") + since_size  # about how many characters it holds, or held since it was read

    def and_then(self, entries: Sequence[Entry]) -> Window:
        """The window after these rows were added."""
        since = (*self._since, *entries)
        size = self.size + sum(len(entry.text) + (len(repr(entry.data)) if entry.data else 0) for entry in entries)
        if len(since) < self._limit:
            return Window(self._text, self._limit, since, size - len(self._text or ""))
        return Window(None, self._limit, since[len(since) - self._limit :], size)

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


def read_entry(role: str, text: str, data: str, inbound_id: str | None) -> Entry:
    """A transcript row as the database has it."""
    return Entry(role, text, inbound_id, orjson.loads(data) if data != "{}" else {})

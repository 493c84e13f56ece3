"""Server-sent events, as far as chat completions use them: the data of each event, from bytes that are cut anywhere."""

from __future__ import annotations

EVENT_BYTES = 4 * 2**20  # the longest line that is put together


class TooMuch(Exception):
    """A line without end."""


class EventData:
    """Puts lines together. Comments, other fields and empty lines are left out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def fed(self, chunk: bytes) -> list[bytes]:
        """The data of the lines that ended in this chunk. Each line of data is a JSON text of its own in this format."""
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest += chunk
            self._check()
            return []
        *whole, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        self._check()
        return [line[5:].strip() for line in whole if line.startswith(b"data:")]

    def left(self) -> list[bytes]:
        """The data of a last line without an end."""
        return self.fed(b"\n")

    def _check(self) -> None:
        if len(self._rest) > EVENT_BYTES:
            raise TooMuch

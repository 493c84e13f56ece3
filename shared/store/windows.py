"""The ends of transcripts as this process left them.

A session's `turn_id` is that of the last turn that moved it on, and no other turn has the same. So whoever finds a session
as one of his own turns left it knows the end of its transcript, and need not read it again.
"""

from __future__ import annotations

from collections import OrderedDict

from shared.value import value
from shared.window import Window

BYTES = 32_000_000  # of memory for all that is kept: some 36,000 conversations of two short rows
SESSION_BYTES = 350  # that a session takes beside its window, measured with tracemalloc


@value
class LeftWindow:
    """The end of a transcript, and the turn that left it so."""

    turn_id: str
    window: Window


NOTHING = LeftWindow("", Window(None, 0))


class Windows:
    """Keeps the latest windows within a budget of memory. It may forget any of them: then the database is read."""

    def __init__(self, most_bytes: int = BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, LeftWindow] = OrderedDict()  # by session key, the latest at the end
        self._bytes = 0

    def of(self, session_key: str) -> LeftWindow:
        """The window that this process left in a key, or NOTHING."""
        return self._kept.get(session_key, NOTHING)

    def keep(self, session_key: str, turn_id: str, window: Window) -> None:
        """Remember what this turn left, which did nothing to the session but add rows."""
        if (before := self._kept.pop(session_key, None)) is not None:
            self._bytes -= SESSION_BYTES + before.window.size
        self._kept[session_key] = LeftWindow(turn_id, window)
        self._bytes += SESSION_BYTES + window.size
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= SESSION_BYTES + oldest.window.size

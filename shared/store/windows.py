"""The ends of transcripts as this process left them.

A session's `turn_id` is that of the last turn that moved it on, and no other turn has the same. So whoever finds a session
as one of his own turns left it knows the end of its transcript, and need not read it again.
"""

from __future__ import annotations

from collections import OrderedDict

from shared.value import value
from shared.window import Window

CHARACTERS = 8_000_000  # of what was said, in all that is kept


@value
class Left:
    turn_id: str
    window: Window


NOTHING = Left("", Window(None, 0))


class Windows:
    def __init__(self, characters: int = CHARACTERS) -> None:
        self._most = characters
        self._kept: OrderedDict[str, Left] = OrderedDict()  # by session key, the latest at the end
        self._characters = 0

    def of(self, session_key: str) -> Left:
        return self._kept.get(session_key, NOTHING)

    def keep(self, session_key: str, turn_id: str, window: Window) -> None:
        """Remember what this turn left, which did nothing to the session but add rows."""
        self._characters += window.size - self._kept.pop(session_key, NOTHING).window.size
        self._kept[session_key] = Left(turn_id, window)
        while self._characters > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._characters -= oldest.window.size

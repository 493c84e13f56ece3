"""How much of an answer its reader has seen, and what they are still to see. Pure.

A stream cannot take back what it said. So text goes on where it continues what was shown, and waits where it does not: after a
worker died, the next attempt begins anew. The committed answer ends it: what is missing of it is said, or all of it where the
live text was of something else.
"""

from __future__ import annotations

from shared.live_text import SaidText

ANEW = "\n\n"  # between what was shown and an answer that does not continue it


class StreamedText:
    """The text of one stream."""

    def __init__(self) -> None:
        self._place = (0, 0)  # the attempt and the row that `_said` belongs to
        self._said: str | None = ""  # what the worker said of it; None: a piece was missed
        self._shown = ""  # what the reader has seen of the row that is being written
        self._has_shown = False  # anything at all

    def take(self, attempt: int, piece: SaidText) -> str:
        """What the reader is shown now; may be empty."""
        if (attempt, piece.row) != self._place:
            self._begin(attempt, piece.row)
        if self._said is None or piece.at != len(self._said):
            self._said = None
            return ""
        self._said += piece.text
        if not self._said.startswith(self._shown):
            return ""
        return self._show(self._said[len(self._shown) :])

    def finish(self, text: str) -> str:
        """What is still missing of the answer as it was committed."""
        if text.startswith(self._shown):
            return self._show(text[len(self._shown) :])
        self._shown = ""
        return self._show(text)

    def _begin(self, attempt: int, row: int) -> None:
        """Text from a new beginning: of the next row, or of another attempt at the same."""
        if attempt == self._place[0] and row > self._place[1]:
            self._shown = ""
        self._place, self._said = (attempt, row), ""

    def _show(self, more: str) -> str:
        if not more:
            return ""
        shown = more if self._shown or not self._has_shown else ANEW + more
        self._shown, self._has_shown = self._shown + more, True
        return shown

"""How often the text of a streamed answer is read. What comes meanwhile waits in the connection, and is one piece then.

Each piece wakes its turn and goes through the agent's loop, the transcript's partial text and the preview. So the number of
pieces is bounded twice: 20 in a second for one answer, and PIECES_PER_SECOND for all answers of a process.

    answers at once   pieces per second and answer   in all
                 10                             20      200
                250                             20    5,000
              1,000                              5    5,000
"""

from __future__ import annotations

from types import TracebackType

LEAST_SECONDS, MOST_SECONDS = 0.05, 1.0  # between two pieces of one answer
PIECES_PER_SECOND = 5000


class Pace:
    """Counts the answers that are being streamed, each as a `with` block."""

    def __init__(self) -> None:
        self._open = 0

    def __enter__(self) -> Pace:
        self._open += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open -= 1

    @property
    def seconds(self) -> float:
        """How long to wait before the next piece of an answer is read."""
        return min(max(self._open / PIECES_PER_SECOND, LEAST_SECONDS), MOST_SECONDS)


PROCESS_PACE = Pace()  # of all models together: they share the event loop

"""The stages of a message's path that are timed or traced, or where a test may break a process.

`with stage("commit"):` is the only place where a stage's time (`keyturn_stage_seconds`), its failpoints
(shared/failpoints.py), the id of its message (`correlate`) and its span (shared/tracing.py) meet. A timed stage costs 1.7 µs,
of which 1.2 µs is the histogram.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from types import TracebackType

from prometheus_client import Histogram

from shared import log, metrics, tracing
from shared.failpoints import reach
from shared.tracing import current
from shared.value import value


@value
class Watched:
    """What is watched of a stage, beside its span."""

    seconds: Histogram | None = None  # None: it is not timed
    points: tuple[str, str] | None = None  # the failpoints before and after it; None: it has none, or only inside
    draws: bool = False  # its span may begin a trace (shared/spans.py)


STAGES: Mapping[str, Watched] = {
    "receive": Watched(draws=True),
    "accept": Watched(metrics.SECONDS["accept"], draws=True),
    "turn": Watched(),
    "load": Watched(points=("load.before", "load.after")),
    "fetch": Watched(metrics.SECONDS["fetch"], ("fetch.before", "fetch.after")),
    "agent": Watched(metrics.SECONDS["agent"], ("agent.before", "agent.after")),
    "model": Watched(),
    "tool": Watched(),
    "commit": Watched(metrics.SECONDS["commit"], ("commit.before", "commit.after")),
    "acknowledge": Watched(metrics.SECONDS["acknowledge"], ("publish.before", "publish.after")),
    "delivery": Watched(),
    "send": Watched(metrics.SECONDS["send"], ("deliver.before_send", "deliver.after_send")),
}


class stage:
    """Surrounds a stage. Its time is counted however it ends; its second failpoint is reached only if it raised nothing.

    `about` is the platform, model or tool that it deals with, and `trace` what the record says that it takes up.
    """

    __slots__ = ("_began", "_span", "_traced", "_watched")

    def __init__(self, name: str, about: str = "", trace: str | None = None) -> None:
        self._watched = watched = STAGES[name]
        by = tracing.active
        if by is not None and not (watched.draws or trace or current.get()):
            by = None  # of a message that is not traced
        self._traced = None if by is None else (by, name, about, trace)

    def __enter__(self) -> None:
        watched = self._watched
        if watched.points is not None:
            reach(watched.points[0])
        if self._traced is not None:
            by, name, about, trace = self._traced
            self._span = by.begin(name, about, trace)
        if watched.seconds is not None:
            self._began = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        watched = self._watched
        if watched.seconds is not None:
            watched.seconds.observe(perf_counter() - self._began)
        if self._traced is not None and self._span is not None:
            self._span.end(error)
        if kind is None and watched.points is not None:
            reach(watched.points[1])


def correlate(message_id: str) -> None:
    """Say which message this task is about: its log lines carry the id until it says another."""
    log.correlation.set(message_id)

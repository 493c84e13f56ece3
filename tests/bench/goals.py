"""What is to hold, as numbers from one run. A goal that this run did not measure says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.board import Board
from tests.bench.cases import plain_answer
from tests.bench.cases.ordered import ANSWERING, KEYTURN
from tests.bench.cases.receivers import RECEIVERS
from tests.bench.cases.replies import ROOMS
from tests.bench.cases.traces import NAME as TRACED
from tests.bench.peers import roster

OURS = "Keyturn redis"


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` gives None for what was not measured. At least `bound`, or at most."""

    number: int
    text: str
    bound: float
    figure: Callable[[Board], float | None]
    at_most: bool = False
    unit: str = "×"


@dataclass(frozen=True, slots=True)
class Judged:
    goal: Goal
    figure: float | None

    @property
    def holds(self) -> bool | None:
        if self.figure is None:
            return None
        return self.figure <= self.goal.bound if self.goal.at_most else self.figure >= self.goal.bound

    def as_json(self) -> dict[str, Any]:
        goal = self.goal
        bound = {"at_most" if goal.at_most else "at_least": goal.bound}
        return {"number": goal.number, "text": goal.text, "figure": self.figure, **bound, "holds": self.holds}


def judge(board: Board) -> list[Judged]:
    return [Judged(goal, goal.figure(board)) for goal in GOALS]


def _figure(case: str, variant: str, column: str) -> Callable[[Board], float | None]:
    return lambda board: board.median(case, variant, column)


def _ratio(case: str, ours: str, others: Sequence[str], column: str = "rate") -> Callable[[Board], float | None]:
    """Ours over the best of the others."""

    def figure(board: Board) -> float | None:
        mine = board.median(case, ours, column)
        theirs = [found for other in others if (found := board.median(case, other, column))]
        return mine / max(theirs) if mine is not None and theirs else None

    return figure


def _worst(case: str, variants: Sequence[str], column: str) -> Callable[[Board], float | None]:
    def figure(board: Board) -> float | None:
        return max((found for v in variants if (found := board.median(case, v, column)) is not None), default=None)

    return figure


def _least(case: str, column: str) -> Callable[[Board], float | None]:
    def figure(board: Board) -> float | None:
        return min((found for row in board.of(case) if (found := row.median(column)) is not None), default=None)

    return figure


def _flatness(case: str, but: str = "") -> Callable[[Board], float | None]:
    """The dearest of our rows over the cheapest, by CPU time."""

    def figure(board: Board) -> float | None:
        rows = [row for row in board.of(case) if row.variant.startswith("Keyturn") and row.variant != but]
        found = [cost for row in rows if (cost := row.median("cpu_ms"))]
        return max(found) / min(found) if len(found) > 1 else None

    return figure


def _growth(what: str, name: str, of: str) -> Callable[[Board], float | None]:
    """The larger of two sizes over the smaller."""

    def figure(board: Board) -> float | None:
        rows = [row for row in board.of("loading") if row.variant.startswith(f"{what}, {name}, ") and of in row.variant]
        found = [time for row in rows if (time := row.median("p50_ms"))]
        return found[-1] / found[0] if len(found) > 1 else None

    return figure


def _more(case: str, one: str, other: str, column: str) -> Callable[[Board], float | None]:
    """How much more the one has than the other."""

    def figure(board: Board) -> float | None:
        mine, theirs = board.median(case, one, column), board.median(case, other, column)
        return mine - theirs if mine is not None and theirs is not None else None

    return figure


def _scaled(name: str, processes: int) -> Callable[[Board], float | None]:
    """How many times one process, if every process had a core: see cases/scale.py."""

    def figure(board: Board) -> float | None:
        one = board.median("scale", f"{name} × 1", "cpu_ms")
        many = board.median("scale", f"{name} × {processes}", "cpu_ms")
        return processes * one / many if one and many else None

    return figure


def _wall(name: str, processes: int) -> Callable[[Board], float | None]:
    return _ratio("scale", f"{name} × {processes}", [f"{name} × 1"])


_UNORDERED = [peer.name for peer in roster.UNORDERED]
_WORKERS = [*(f"Keyturn {name}" for name in KEYTURN), ANSWERING]
_SEARCHES = [f"{name}, {who}" for name in ("SQLite", "PostgreSQL") for who in ("who said half", "one of many")]
_RECEIVERS = [f"webhook, {name}" for name in KEYTURN]
STREAMS = "1,000 turns"
ASIDE = (plain_answer.MODEL, plain_answer.ECHO)


GOALS = (
    Goal(1, "ordered: redis ÷ RQ with the recipe, stock worker", 20, _ratio("ordered", OURS, [roster.RQ_STOCK.name])),
    Goal(1, "ordered: redis ÷ arq with the recipe, its defaults", 5, _ratio("ordered", OURS, [roster.ARQ_LOCKED.name])),
    Goal(1, "ordered: redis ÷ GroupMQ, empty turns", 0.5, _ratio("ordered", OURS, ["GroupMQ"])),
    Goal(1, "20 ms turns: redis ÷ GroupMQ, defaults of both", 1, _ratio("20 ms turns", OURS, ["GroupMQ"])),
    Goal(1, "ordered: redis ÷ the fastest of those without order", 1, _ratio("ordered", OURS, _UNORDERED)),
    Goal(2, "ordered: journal on SQLite ÷ redis", 0.6, _ratio("ordered", "Keyturn journal SQLite", [OURS])),
    Goal(2, "ordered: journal on PostgreSQL ÷ redis", 0.5, _ratio("ordered", "Keyturn journal PostgreSQL", [OURS])),
    Goal(3, "CPU per message in the worker, the dearest of four", 1, _worst("ordered", _WORKERS, "cpu_ms"), True, "ms"),
    Goal(
        3,
        "CPU per message in the receiver, the dearest of three",
        1,
        _worst("accept", _RECEIVERS, "cpu_ms"),
        True,
        "ms",
    ),
    Goal(3, "round trips to accept a message", 1, _figure("trips", "Keyturn journal SQLite", "accept_trips"), True, ""),
    Goal(3, "round trips to run it", 3, _figure("trips", "Keyturn journal SQLite", "run_trips"), True, ""),
    Goal(
        4,
        "latency at 200/s, journal on SQLite, p50",
        15,
        _figure("latency", "200/s, journal SQLite", "p50_ms"),
        True,
        "ms",
    ),
    Goal(
        4,
        "latency at 200/s, journal on SQLite, p99",
        60,
        _figure("latency", "200/s, journal SQLite", "p99_ms"),
        True,
        "ms",
    ),
    Goal(
        4,
        "replies while turns fill the worker, outbox to receipt, p95",
        50,
        _worst("replies", list(ROOMS), "p95_ms"),
        True,
        "ms",
    ),
    Goal(5, "1,000 turns of 1 s", 1.8, _figure("waiting", "1,000 turns", "seconds"), True, "s"),
    Goal(5, "1,000 turns of 1 s, memory", 150, _figure("waiting", "1,000 turns", "peak_mb"), True, "MB"),
    Goal(5, "5,000 turns of 1 s", 6, _figure("waiting", "5,000 turns", "seconds"), True, "s"),
    Goal(5, "5,000 turns of 1 s, memory", 400, _figure("waiting", "5,000 turns", "peak_mb"), True, "MB"),
    Goal(6, "history: dearest turn ÷ cheapest", 1.3, _flatness("history"), True),
    Goal(6, "sessions: dearest turn ÷ cheapest", 1.3, _flatness("sessions"), True),
    Goal(
        6,
        "10,000 sessions: whole index ÷ Keyturn's whole turn",
        50,
        _ratio("sessions", "whole index, 10,000 sessions", ["Keyturn, 10,000 sessions"], "cpu_ms"),
    ),
    Goal(
        6,
        "2,000 messages: saving the whole file ÷ load + commit",
        20,
        _ratio("history", "whole file, 2,000 messages", ["load + commit, 2,000 messages"], "cpu_ms"),
    ),
    *(
        Goal(6, f"loading, {name}: 100,000 messages ÷ 100", 1.3, _growth("load", name, "messages"), True)
        for name in ("SQLite", "PostgreSQL")
    ),
    *(
        Goal(6, f"loading, {name}: among 1,000,000 sessions ÷ 1,000", 1.3, _growth("touch", name, "sessions"), True)
        for name in ("SQLite", "PostgreSQL")
    ),
    Goal(6, "search among 1,000,000 messages, the slowest p99", 100, _worst("search", _SEARCHES, "p99_ms"), True, "ms"),
    Goal(7, "scale: 2 processes ÷ 1, PostgreSQL, CPU accounted", 1.7, _scaled("journal PostgreSQL", 2)),
    Goal(7, "scale: 2 processes ÷ 1, redis, CPU accounted", 1.7, _scaled("redis", 2)),
    Goal(7, "sharing: 2 workers, the lesser one's part", 1 / 3, _least("sharing", "least_share"), unit=""),
    *(
        Goal(
            12,
            f"space, {name}: MB per 1,000 messages after retention",
            1.5,
            _figure("space", name, "after_mb"),
            True,
            "MB",
        )
        for name in ("SQLite", "PostgreSQL")
    ),
    *(
        Goal(12, f"retention, {name}: database ÷ transcripts", 1.1, _figure("retention", name, "transcripts"), True)
        for name in ("SQLite", "PostgreSQL")
    ),
    *(
        Goal(
            12, f"retention, {name}: the longest write", 50, _figure("retention", name, "longest_write_ms"), True, "ms"
        )
        for name in ("SQLite", "PostgreSQL")
    ),
    Goal(
        12,
        "retention: messages answered twice",
        0,
        _worst("retention", ["SQLite", "PostgreSQL"], "answered_twice"),
        True,
        "",
    ),
    Goal(7, "backlog: a fresh key's wait, p95", 1, _figure("backlog", "Keyturn journal SQLite", "p95_s"), True, "s"),
    *(
        Goal(
            8, f"1,000 streamed answers of 2 s at once{what}", bound, _figure("streaming", STREAMS, column), True, unit
        )
        for what, bound, column, unit in (
            ("", 5, "seconds", "s"),
            (", memory", 250, "peak_mb", "MB"),
            (", event loop late, p99", 100, "lag_p99_ms", "ms"),
            (", CPU per turn", 3, "turn_cpu_ms", "ms"),
        )
    ),
    *(
        Goal(8, f"a model's answer beside an echo: {what} more", most, _more("plain answer", *ASIDE, column), True, "")
        for what, most, column in (
            ("Redis round trips", 0, "message_trips"),
            ("SQL commits", 0, "commits"),
            ("SQL statements (its usage, in one that its batch shares)", 1, "statements"),
        )
    ),
    *(
        Goal(9, f"receiver of {name}: requests/s ÷ an empty route's", 0.5, _figure("receivers", name, "share"))
        for name in RECEIVERS
    ),
    Goal(
        9,
        "accepting at 200/s, journal on SQLite, p99",
        50,
        _figure("latency", "200/s, journal SQLite", "accept_p99_ms"),
        True,
        "ms",
    ),
    *(
        Goal(
            10,
            f"{name}, 100,000 keys wait, 1,000,000 sessions: {what}",
            most,
            _figure("watching", name, of),
            True,
            unit,
        )
        for name in ("SQLite", "PostgreSQL")
        for what, most, of, unit in (
            ("the slowest look", 300, "slowest_ms", "ms"),
            ("a live page", 1, "live", "% of a core"),
        )
    ),
    Goal(
        11, "traces of 5 %: CPU per message, more than without", 3, _figure("traces", TRACED, "sampled_more"), True, "%"
    ),
    Goal(
        11,
        "traces off: the looks at the switch, of a message's CPU",
        1,
        _figure("traces", TRACED, "off_more"),
        True,
        "%",
    ),
)
# Shown beside the goals, judged by nobody.
BESIDE: dict[str, Callable[[Board], float | None]] = {
    "space, SQLite: MB per 1,000 messages before retention": _figure("space", "SQLite", "before_mb"),
    "space, PostgreSQL: MB per 1,000 messages before retention": _figure("space", "PostgreSQL", "before_mb"),
    "ordered: redis, answering ÷ the fastest of those without order": _ratio("ordered", ANSWERING, _UNORDERED),
    "ordered: redis ÷ RQ with the recipe, SimpleWorker": _ratio("ordered", OURS, [roster.RQ_SIMPLE.name]),
    "ordered: redis ÷ arq with the recipe, tuned": _ratio("ordered", OURS, [roster.ARQ_TUNED.name]),
    "2,000 messages: saving the whole file ÷ Keyturn's whole turn, alone": _ratio(
        "history", "whole file, 2,000 messages", ["Keyturn, 2,000 messages"], "cpu_ms"
    ),
    "history: dearest turn ÷ cheapest, where the window is full": _flatness("history", but="Keyturn, 10 messages"),
    "scale: 2 processes ÷ 1, PostgreSQL, by the clock": _wall("journal PostgreSQL", 2),
    "scale: 2 processes ÷ 1, redis, by the clock": _wall("redis", 2),
    "floor: 3 calls + 1 SQLite commit ÷ journal on SQLite, CPU": lambda board: _over(
        board.median("floor", "3 calls, 1 commit, SQLite", "cpu_ms"),
        board.median("ordered", "Keyturn journal SQLite", "cpu_ms"),
    ),
    "receiver with its socket, CPU per message at 200/s": _figure("latency", "200/s, journal SQLite", "receive_cpu_ms"),
}


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None

"""The tables: a case's contestants with medians and spread, and the goals with what came of them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.board import Board, Row
from tests.bench.goals import BESIDE, Judged

HEADINGS = {
    "rate": "msg/s",
    "cpu_ms": "CPU ms/msg",
    "trips": "trips/msg",
    "accept_trips": "trips to accept",
    "run_trips": "trips to run",
    "violations": "out of order",
    "retries": "wasted retries",
    "peak_mb": "MB",
    "seconds": "s",
    "ms": "ms/msg",
    "p50_ms": "p50 ms",
    "p95_ms": "p95 ms",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
    "index_ms": "to index ms/msg",
    "receive_cpu_ms": "receiver CPU ms/msg",
    "work_cpu_ms": "worker CPU ms/msg",
    "p50_s": "p50 s",
    "p95_s": "p95 s",
    "max_s": "max s",
    "newcomers": "newcomers",
    "least_share": "least share",
    "accept_p99_ms": "to 2xx, p99 ms",
    "empty_rate": "empty route/s",
    "share": "of an empty route",
    "slowest_ms": "slowest ms",
    "overview_ms": "overview",
    "list_ms": "list",
    "filter_ms": "filter",
    "sessions_ms": "sessions",
    "search_ms": "search",
    "metrics_ms": "/metrics",
    "top_ms": "top",
    "status_ms": "status",
    "live": "live, % core",
    "traced_cpu_ms": "CPU ms/msg, traces on",
    "sampled_more": "more, %",
    "off_looks": "looks/msg, traces off",
    "off_more": "of the CPU, %",
    "lag_p99_ms": "loop late, p99 ms",
    "lag_max_ms": "loop late, max ms",
    "turn_cpu_ms": "CPU ms/turn",
    "provider_cpu_ms": "provider CPU ms/turn",
    "message_trips": "trips/msg",
    "statements": "SQL statements/msg",
    "commits": "SQL commits/msg",
    "sql_reads": "SQL reads/msg",
    "before_mb": "MB per 1,000 before",
    "disk_before_mb": "on disk before",
    "after_mb": "after retention",
    "transcripts_mb": "of it transcripts and search",
    "disk_mb": "on disk after",
    "prune_seconds": "pruning s",
    "longest_write_ms": "longest write ms",
    "alone_p99_ms": "alone p99 ms",
    "alone_max_ms": "alone max ms",
    "answered_twice": "answered twice",
    "transcripts": "÷ transcripts",
    "disk": "disk ÷ transcripts",
}


def show_case(console: Console, board: Board, case: str) -> None:
    rows = board.of(case)
    columns = list(dict.fromkeys(name for row in rows for name in row.columns()))
    table = Table(title=case, title_justify="left")
    table.add_column("contestant", overflow="fold")
    for name in columns:
        table.add_column(HEADINGS.get(name, name), justify="right")
    for row in rows:
        label = escape(row.variant) + (f" [dim]({escape(row.note)})[/dim]" if row.note else "")
        if row.samples:
            table.add_row(label, *(_cell(row, name) for name in columns))
        else:
            table.add_row(label, *(["–"] * len(columns)))
    console.print(table)
    for row in rows:
        if row.failed:
            console.print(f"  [yellow]{escape(row.variant)}[/yellow]: {escape(row.failed)}")


def show_goals(console: Console, board: Board, judged: Iterable[Judged]) -> None:
    table = Table(title="goals", title_justify="left")
    for name in ("", "goal", "measured", "needed", "holds"):
        table.add_column(name, justify="right" if name in ("measured", "needed") else "left")
    verdicts = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[dim]not measured[/dim]"}
    for item in judged:
        goal = item.goal
        measured = "–" if item.figure is None else f"{number(item.figure)} {goal.unit}"
        bound = f"{'≤' if goal.at_most else '≥'} {number(goal.bound)} {goal.unit}"
        table.add_row(str(goal.number), escape(goal.text), measured, bound, verdicts[item.holds])
    for text, figure in BESIDE.items():
        if (found := figure(board)) is not None:
            table.add_row("", f"[dim]{escape(text)}[/dim]", number(found), "", "")
    console.print(table)


def _cell(row: Row, column: str) -> str:
    figures, middle = row.figures(column), row.median(column)
    if middle is None:
        return "–"
    if len(figures) == 1 or min(figures) == max(figures):
        return number(middle)
    return f"{number(middle)} [dim]{number(min(figures))}…{number(max(figures))}[/dim]"


def number(value: float) -> str:
    """Three digits that count."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"

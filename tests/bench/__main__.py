"""`./run bench`: measure, print the tables, write the figures and the chart."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from tests.bench import chart, page, report, table
from tests.bench.board import Board
from tests.bench.cases import CASES
from tests.bench.goals import judge
from tests.bench.ground import open_ground
from tests.bench.measure import measure
from tests.bench.sizes import FULL, QUICK, TINY


def arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about two minutes: shows that it runs, proves nothing")
    parser.add_argument("--tiny", action="store_true", help="a few seconds")
    parser.add_argument(
        "--only", action="append", choices=list(CASES), metavar="CASE", help=f"one of: {', '.join(CASES)}"
    )
    parser.add_argument("--rounds", type=int, default=None, help="how often each contestant runs")
    parser.add_argument("--messages", type=int, default=None, help="how many are kept in the cases space and retention")
    parser.add_argument("--no-peers", action="store_true", help="Keyturn alone")
    parser.add_argument("--no-postgres", action="store_true", help="without PostgreSQL")
    parser.add_argument("--json", type=Path, default=None, help="where to write every figure")
    parser.add_argument("--chart", type=Path, default=None, help="where to draw the ordered case, as SVG")
    parser.add_argument("--page", type=Path, default=None, help="where to write the tables, as Markdown")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    """0 when every contestant of ours ran, whatever the times; 1 otherwise."""
    given = arguments(args)
    sizes = TINY if given.tiny else QUICK if given.quick else FULL
    if given.rounds is not None:
        sizes = replace(sizes, rounds=max(given.rounds, 1))
    if given.messages is not None:
        sizes = replace(sizes, talked=max(given.messages, 1))
    console, progress = Console(width=max(Console().width, 120)), Console(stderr=True)
    begun = datetime.now(UTC)

    def show(board: Board, case: str) -> None:
        table.show_case(console, board, case)

    with open_ground(with_postgres=not given.no_postgres) as ground, progress.status("starting") as status:
        board = measure(
            ground, sizes, given.only or list(CASES), peers=not given.no_peers, say=status.update, after=show
        )
    judged = judge(board)
    table.show_goals(console, board, judged)
    facts = report.about(begun)
    caption = f"{facts['begun'][:10]} · {facts['cores']} cores · Python {facts['python']} · medians of {sizes.rounds}"
    console.print(f"{caption} · {facts['valkey']} · {facts['packages']}", highlight=False)
    if given.json is not None:
        given.json.write_bytes(report.as_json(board, judged, sizes, begun))
    if given.page is not None:
        packages = ", ".join(f"{name} {found}" for name, found in facts["packages"].items())
        told = f"{caption} · {facts['processor']} · {facts['valkey'].partition(' sha')[0]} · {packages}"
        given.page.write_text(page.page(board, judged, told))
    if given.chart is not None:
        given.chart.write_text(chart.draw(board, caption))
    return 1 if any(row.failed.startswith("failed") and "Keyturn" in row.variant for row in board) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and files are cleared away then too
    sys.exit(main())

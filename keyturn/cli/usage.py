"""`keyturn usage`: what answers have cost."""

from __future__ import annotations

from typing import Annotated

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask_store
from shared.reading.usage import UsageGroup
from shared.reading.usage import usage as read_usage

COUNTS = ("requests", "input", "output", "cache_read", "cache_write", "total")


def usage(
    by: Annotated[UsageGroup, typer.Option(help="What a line stands for.")] = UsageGroup.DAY,
    days: Annotated[int | None, typer.Option(min=1, help="Only the last so many days, today included.")] = None,
    limit: show.Limit = 50,
    json: show.Json = False,
) -> None:
    """Show what answers have cost, in tokens and USD."""
    rows = [
        {
            by.value: line.name,
            **{name: getattr(line.spent, name) for name in COUNTS},
            "cost_usd": str(line.spent.cost_usd) if line.spent.cost != "unknown" else None,
            "cost": line.spent.cost,
        }
        for line in ask_store(lambda store, _: read_usage(store, by, limit, days))
    ]
    if json:
        show.as_json(rows)
        return
    titles = (by.value, "requests", "in", "out", "cache read", "cache written", "tokens", "USD", "cost")
    show.table(titles, [list(row.values()) for row in rows], empty="nothing was spent")

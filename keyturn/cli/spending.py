"""`keyturn usage`: what answers have cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask_store

GROUPS = ("user", "agent", "model", "day")
COUNTS = ("requests", "input", "output", "cache_read", "cache_write", "total")


def usage(
    by: Annotated[str, typer.Option(help="user, agent, model or day.")] = "day",
    days: Annotated[int | None, typer.Option(min=1, help="Only the last so many days, today included.")] = None,
    limit: show.Limit = 50,
    json: show.Json = False,
) -> None:
    """Show what answers have cost, in tokens and USD."""
    if by not in GROUPS:
        raise typer.BadParameter(f"--by takes {', '.join(GROUPS)}")
    since = "" if days is None else (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
    rows: list[dict[str, Any]] = []
    for name, spent in ask_store(lambda store, _: store.usage.by(by, since, limit)):
        counts = {column: getattr(spent, column) for column in COUNTS}
        cost = str(spent.cost_usd) if spent.cost != "unknown" else None
        rows.append({by: name, **counts, "cost_usd": cost, "cost": spent.cost})
    if json:
        show.as_json(rows)
        return
    titles = (by, "requests", "in", "out", "cache read", "cache written", "tokens", "USD", "cost")
    show.table(titles, [list(row.values()) for row in rows], empty="nothing was spent")

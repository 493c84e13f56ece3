"""`keyturn top`: who waits and who is being served, live, with the keys of htop."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask
from keyturn.cli.status import numbers

if TYPE_CHECKING:
    from keyturn.cli.top.look import TopLook
    from shared.pipeline import Pipeline
    from shared.reading.conversation_query import ConversationQuery

COLUMNS = ("state", "waited", "mail", "attempts", "platform", "worker", "key")


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    filter: Annotated[
        str, typer.Option(callback=show.readable, help="Only these: platform: state: age> attempts> user: key:")
    ] = "",
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 1.0,
    json: show.Json = False,
) -> None:
    """Watch conversations at work: who waits for a worker, who is being served, and for how long.

    Keys: arrows choose, Enter shows one, / filters, < and > sort, p pauses, s stops a turn, q ends. Without a terminal
    it prints one look. --json prints a line for each look.
    """
    from keyturn.cli.top.look import look
    from shared.reading.conversation_query import parse_query

    query = parse_query(filter)  # a wrong one is said before anything is asked
    if json and not once:
        with show.until_nobody_reads():
            ask(lambda pipe: _follow(pipe, query, every))
    elif json:
        show.as_json(ask(lambda pipe: look(pipe, query)), line=True)
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(ask(lambda pipe: look(pipe, query)))
    else:
        from keyturn.cli.top.screen import watch

        ask(lambda pipe: watch(pipe, filter, every))


async def _follow(pipe: Pipeline, query: ConversationQuery, every: float) -> None:
    """A line of JSON for each look, until Ctrl-C or until nobody reads."""
    from keyturn.cli.top.look import look

    while True:
        show.as_json(await look(pipe, query), line=True)
        sys.stdout.flush()
        await asyncio.sleep(every)


def _print(seen: TopLook) -> None:
    from keyturn.cli.top.frame import cells

    typer.echo(seen.status.verdict)
    typer.echo()
    show.record(numbers(seen.status))
    typer.echo()
    rows = [cells(one) for one in seen.conversations]
    show.table(COLUMNS, rows, empty=seen.trouble or "every conversation is idle")
    if not seen.complete and not seen.trouble:
        typer.echo(f"and more: these are the first {len(rows)}; --filter narrows the search")

"""How far a long command has come: a bar on a terminal, a line now and then elsewhere. On stderr, beside the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 10  # in all, where there is no bar


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how much is done."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(what: str, total: int) -> Callable[[int], None]:
    told = 0

    def advance(done: int) -> None:
        nonlocal told
        if done * LINES // max(total, 1) > told * LINES // max(total, 1) or done >= total > told:
            typer.echo(f"{done} of {total} {what}", err=True)
            told = done

    return advance

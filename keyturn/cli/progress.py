"""How far a long command has come: a bar on a terminal, a line now and then elsewhere. On stderr, beside the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from shared.store.backup.content import CopyProgress

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


@contextmanager
def told_progress() -> Iterator[Callable[[CopyProgress], None]]:
    """A function to be told what is done now. What has no number is a line on a terminal, and nothing elsewhere."""
    with ExitStack() as bar:
        doing = ""
        advance: Callable[[int], object] = _nothing

        def tell(progressed: CopyProgress) -> None:
            nonlocal doing, advance
            if progressed.doing != doing:
                bar.close()
                doing, advance = progressed.doing, _nothing
                if progressed.total:
                    advance = bar.enter_context(progress(doing, progressed.total))
                elif sys.stderr.isatty():
                    typer.echo(f"{doing}…", err=True)
            advance(progressed.done)

        yield tell


def _nothing(done: int) -> None:
    """For what is not counted."""

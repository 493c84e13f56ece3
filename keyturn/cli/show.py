"""How commands print: tables for a person, the same without colours or cut-off ids for a pipe, JSON for a program.

Text that strangers wrote is shown as text: a control character in it moves no cursor and hides nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shared.clock import iso

_UNUSUAL = re.compile(r"[^\n\x20-\x7e]")
FOLDED_WIDTH = 20  # columns: text that is folded more narrowly is hard to read
PIPE_WIDTH = 100_000  # columns: a line that a program reads is never folded
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (bidi, zero width), lone surrogates, line separators

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="At most this many.")]


def readable(text: str) -> str:
    """Refuses an argument that no store could keep, before one is asked."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("not valid UTF-8") from None
    return text


def maybe_readable(text: str | None) -> str | None:
    return None if text is None else readable(text)


def plain(value: object, *, lines: bool = False) -> str:
    """A value as text that cannot move a terminal's cursor. With `lines`, line breaks stay."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = iso(value) if isinstance(value, datetime) else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if unicodedata.category(char) not in _UNSAFE or (lines and char == "\n")
        else " "
        if char in "\n\t"
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def named(value: Any) -> dict[str, Any]:
    """The fields of a value by name, to print as a record or to add to."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def as_json(value: Any, *, line: bool = False) -> None:
    """Print values, and what is made of them, for a program: times in ISO form, decimals as text. With `line`, in one line.

    Characters that could move a terminal's cursor or hide text are written as escapes, which a program reads as the same text.
    """
    option = orjson.OPT_PASSTHROUGH_DATETIME | (0 if line else orjson.OPT_INDENT_2)
    text = orjson.dumps(value, option=option, default=_in_json).decode()
    typer.echo(_UNUSUAL.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    return json.dumps(char)[1:-1] if unicodedata.category(char) in _UNSAFE else char


def _in_json(value: object) -> str:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(type(value).__name__)


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Ends the command quietly on Ctrl-C, or when what its output was piped to has ended."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes what is left when it ends
        raise typer.Exit from None


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, folds: Sequence[str] = ()) -> None:
    """Rows under their columns, or the sentence `empty`. Where the terminal is narrower, the columns `folds` are folded: those of
    texts, and not of names that somebody copies. Where less than FOLDED_WIDTH is left for one, each row becomes a block of lines."""
    if not rows:
        typer.echo(empty)
        return
    console = _console()
    if _width(console, _grid(console, columns, rows, folds, FOLDED_WIDTH)) <= console.width:
        _print(console, _grid(console, columns, rows, folds))
        return
    for n, row in enumerate(rows):
        if n:
            typer.echo()
        record({column or "-": cell for column, cell in zip(columns, row, strict=True)})


def _grid(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    folds: Sequence[str],
    most: int | None = None,
) -> Table:
    """A table that is as wide as it needs, except for folded columns, which are `most` wide at the most."""
    grid = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for column in columns:
        is_folded = column in folds
        grid.add_column(column, overflow="fold", no_wrap=not is_folded, max_width=most if is_folded else None)
    for row in rows:
        grid.add_row(*(Text(plain(cell)) for cell in row))
    return grid


def _width(console: Console, grid: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=PIPE_WIDTH), grid).maximum


def record(fields: Mapping[str, object]) -> None:
    """One thing, a line for each field."""
    console = _console()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        grid.add_row(Text(name), Text(plain(value)))
    _print(console, grid)


def passage(title: str, text: str) -> None:
    """A text of several lines under its title."""
    console = _console()
    console.print(Text(plain(title), style="bold"))
    for line in plain(text, lines=True).split("\n"):
        console.print(Text(f"  {line}"))


def _console() -> Console:
    piped = not sys.stdout.isatty()
    return Console(highlight=False, width=PIPE_WIDTH, force_terminal=False) if piped else Console(highlight=False)


def _print(console: Console, grid: Table) -> None:
    if console.is_terminal:
        console.print(grid)
        return
    with console.capture() as captured:
        console.print(grid)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))

"""`keyturn logs`: the log lines of all processes that keep files, by time, for one conversation or message if asked."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.reading.logs import LogLine

FOLLOW_SECONDS = 0.25


class LogLevel(StrEnum):
    """How important a line is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")] = False,
    key: Annotated[
        str | None, typer.Option(callback=show.maybe_readable, help="Only about this conversation (session key).")
    ] = None,
    message: Annotated[
        str | None, typer.Option(callback=show.maybe_readable, help="Only about this message: in_… or its event id.")
    ] = None,
    level: Annotated[LogLevel, typer.Option(help="This level and worse.")] = LogLevel.DEBUG,
    limit: show.Limit = 200,
    json: show.Json = False,
) -> None:
    """Show the last log lines of this directory's `up`, or of every process that has the same KEYTURN_LOG_DIR."""
    from shared import settings
    from shared.reading.logs import LogReader, query_of

    config = settings.load()
    query = query_of(config, key, _id_of(message), level)
    reader, printer = LogReader(config.log_directory, query), _Printer(json=json)
    with show.until_nobody_reads(), closing(reader):
        printer.print(reader.last(limit))
        while follow:
            time.sleep(FOLLOW_SECONDS)
            printer.print(reader.more())


def _id_of(message: str | None) -> str | None:
    """Our id of a message; the journal knows it where an event id is given."""
    if message is None or message.startswith("in_"):
        return message
    from keyturn.cli.deployment import ask
    from shared.reading.trace import find_message

    return ask(lambda pipe: find_message(pipe, message)).id


class _Printer:
    """Prints lines as they come; a day stands before its first line."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._day = time.strftime("%Y-%m-%d")
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def print(self, lines: Sequence[LogLine]) -> None:
        from shared.log import readable

        for line in lines:
            if self._json:
                show.as_json(line, line=True)
                continue
            day = _day(line)
            if day != self._day:
                self._day = day
                typer.echo(day)
            typer.echo(readable(dict(line), lambda text: text, coloured=self._coloured))
        sys.stdout.flush()


def _day(line: LogLine) -> str:
    from datetime import datetime

    return datetime.fromisoformat(str(line["timestamp"])).astimezone().strftime("%Y-%m-%d")

"""`keyturn backup`: the database as one file, made while everything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyturn.cli import show
from keyturn.cli.deployment import with_settings
from keyturn.cli.progress import told_progress
from shared.finding import counted


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, for its owner alone.")],
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    json: show.Json = False,
) -> None:
    """Write the database into one file while everything runs. Files that people sent are not in it; Redis needs no backup.

    PostgreSQL needs pg_dump and pg_restore on PATH.
    """
    from shared.operating.backup import back_up

    show.readable(str(file))
    with told_progress() as tell:
        written = with_settings(lambda settings: back_up(settings, file, tell, replace=replace))
    if json:
        show.as_json(written)
        return
    what = f"{counted(written.sessions, 'session', 'sessions')}, {counted(written.messages, 'message', 'messages')}"
    typer.echo(f"{show.plain(written.file)}: {written.bytes:,} bytes, {what}, as of {show.plain(written.at)}")
    typer.echo(f"Files that people sent are not in it; they are in {show.plain(written.blobs)}")

"""`keyturn import`: conversations of an older gateway move in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shared.cli import show
from shared.cli.deployment import ask_store
from shared.cli.progress import progress

if TYPE_CHECKING:
    from shared.moving.conversation import Reader
    from shared.moving.report import Report
    from shared.settings import Settings
    from shared.store import Store

    OpenReader = Callable[[Settings], Reader]

app = typer.Typer(no_args_is_help=True, help="Bring conversations of an older gateway along. Safe to run again.")

Home = Annotated[Path, typer.Argument(exists=True, help="The gateway's directory. It is only read.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
SHOWN = 20  # of each kind of line; --json has them all


@app.command()
def hermes(path: Home, dry_run: DryRun = False, json: show.Json = False) -> None:
    """From a hermes home: state.db, sessions/sessions.json, sessions/*.jsonl."""
    from shared.moving.hermes import HermesHome
    from shared.moving.old_keys import Sharing

    def open_reader(config: Settings) -> Reader:
        return HermesHome(path, Sharing(config.group_sessions_per_user, config.thread_sessions_per_user))

    _tell(_move(open_reader, dry_run), json)


@app.command()
def nanobot(path: Home, dry_run: DryRun = False, json: show.Json = False) -> None:
    """From a nanobot workspace: sessions/*.jsonl."""
    from shared.moving.nanobot import NanobotWorkspace
    from shared.moving.old_keys import Sharing

    def open_reader(config: Settings) -> Reader:
        return NanobotWorkspace(path, Sharing(config.group_sessions_per_user, config.thread_sessions_per_user))

    _tell(_move(open_reader, dry_run), json)


def _move(open_reader: OpenReader, dry_run: bool) -> Report:
    from shared.moving.write import move_in

    async def run(store: Store, config: Settings) -> Report:
        reader = open_reader(config)
        with progress("sessions", reader.total) as advance:
            return await move_in(reader, store.database, dry_run=dry_run, advance=advance)

    try:
        return ask_store(run)
    except OSError as error:  # a file that may not be read is no empty conversation
        raise show.Refused(f"{error.filename}: {error.strerror}") from None


def _tell(report: Report, json: bool) -> None:
    found = report.as_json()
    if json:
        show.as_json(found)
        return
    if report.dry_run:
        typer.echo("dry run: nothing was written")
    show.record({name.replace("_", " "): value for name, value in found.items() if type(value) is int})
    for reason, count in list(found["skipped_because"].items())[:SHOWN]:
        typer.echo(f"skipped {count}: {show.plain(reason)}")
    for name, word in (("left", "reason"), ("notes", "note")):
        for line in found[name][:SHOWN]:
            typer.echo(f"{show.plain(line['ref'])}: {show.plain(line[word])} ({show.plain(line['session_key'])})")
        if len(found[name]) > SHOWN:
            typer.echo(f"and {len(found[name]) - SHOWN} more: see --json")

"""`keyturn import`: conversations of an older gateway move in."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import operator
from keyturn.cli.deployment import ask_store
from keyturn.cli.progress import progress
from shared.errors import CannotDo

if TYPE_CHECKING:
    from keyturn.importing.conversation import GatewayReader
    from keyturn.importing.report import Report
    from shared.routing import Sharing
    from shared.settings import Settings
    from shared.store import Store

    OpenReader = Callable[[Sharing, str], GatewayReader]

app = typer.Typer(no_args_is_help=True, help="Bring conversations of an older gateway along. Safe to run again.")

Home = Annotated[Path, typer.Argument(exists=True, help="The gateway's directory. It is only read.")]
MemoryOf = Annotated[
    list[str] | None,
    typer.Option("--memory-of", metavar="PLATFORM:USER", help="Whose notes the memory files are. May be given again."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
SHOWN = 20  # of each kind of line; --json has them all


@app.command()
def hermes(path: Home, memory_of: MemoryOf = None, dry_run: DryRun = False, json: show.Json = False) -> None:
    """From a hermes home: state.db, sessions/, memories/."""
    from keyturn.importing.hermes.home import HermesHome

    _tell(_move("hermes", partial(HermesHome, path), memory_of or [], dry_run), json)


@app.command()
def nanobot(path: Home, memory_of: MemoryOf = None, dry_run: DryRun = False, json: show.Json = False) -> None:
    """From a nanobot workspace, or from the directory that holds its sessions."""
    from keyturn.importing.nanobot.workspace import NanobotWorkspace

    _tell(_move("nanobot", partial(NanobotWorkspace, path), memory_of or [], dry_run), json)


def _move(gateway: str, open_reader: OpenReader, memory_of: list[str], dry_run: bool) -> Report:
    from keyturn.importing.memory import owner_named
    from keyturn.importing.write import move_in
    from shared.operating.audit import Action, audited
    from shared.routing import Sharing

    async def run(store: Store, config: Settings) -> Report:
        reader = open_reader(Sharing.of(config), os.environ.get("USER", "me"))
        owners = [owner_named(name) for name in memory_of]
        with progress("sessions", reader.total) as advance:
            move = partial(move_in, reader, store.database, dry_run=dry_run, memory_of=owners, advance=advance)
            return await (move() if dry_run else audited(store, operator(), Action("import", gateway), move))

    try:
        return ask_store(run)
    except OSError as error:  # a file that may not be read is no empty conversation
        raise CannotDo(f"{error.filename}: {error.strerror}") from None


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
    if found["memory_left"]:
        typer.echo(f"memory files: {found['memory_left']}")
    if found["shared_chats"]:
        typer.echo("Groups that share one conversation go on with it if you set")
        typer.echo(f"KEYTURN_SHARED_CHATS={','.join(map(show.plain, found['shared_chats']))}")

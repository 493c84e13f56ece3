"""`keyturn restore`: a backup takes the place of the database, while nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import operator
from keyturn.cli.deployment import with_settings
from keyturn.cli.progress import told_progress
from shared.finding import counted

if TYPE_CHECKING:
    from shared.operating.restoring import RestoredDatabase, RestorePlan


def restore(
    file: Annotated[Path, typer.Argument(help="What `keyturn backup` wrote.")],
    hold: Annotated[
        bool, typer.Option("--hold", help="Pause all turns: messages that waited are answered when you resume them.")
    ] = False,
    yes: show.Yes = False,
    json: show.Json = False,
) -> None:
    """Put a backup in the place of the database. Stop all processes first.

    Replies that waited when the backup was made are held until you decide; messages that waited are answered again, unless you
    --hold them. What is Keyturn's in Redis is removed.
    """
    from shared.operating.restoring import WantedRestore, restore

    show.readable(str(file))
    with told_progress() as tell:

        def agree(plan: RestorePlan) -> None:
            if not yes:
                _ask(plan)

        done = with_settings(
            lambda settings: restore(settings, WantedRestore(file, hold), operator(), agree, tell), joined=False
        )
    if json:
        show.as_json(done)
    else:
        _print(done)


def _ask(plan: RestorePlan) -> None:
    what = f"{counted(plan.sessions, 'session', 'sessions')}, {counted(plan.messages, 'message', 'messages')}, written {show.plain(plan.written_at)}"
    text = f"Replace {show.plain(plan.database)} by {show.plain(plan.file)} ({what})? What was said since is gone."
    typer.confirm(text, abort=True, err=True)


def _print(done: RestoredDatabase) -> None:
    typer.echo(
        f"restored {show.plain(done.file)}: {counted(done.sessions, 'session', 'sessions')}, {counted(done.messages, 'message', 'messages')}"
    )
    if done.kept is not None:
        typer.echo(f"The old database is kept as {show.plain(done.kept)}: remove it when you need it no more")
    if done.held:
        replies = counted(done.held, "reply is held: it", "replies are held: they")
        typer.echo(f"{replies} may have been sent after the backup. `keyturn deliveries list` shows them;")
        typer.echo(
            "  `keyturn dead replay-all --reason held` sends them again, `keyturn dead drop-all --reason held` does not"
        )
    if done.waiting:
        waiting = counted(done.waiting, "message", "messages")
        then = (
            "after `keyturn keys resume lane:turns`"
            if done.holding
            else "when workers run, perhaps for the second time"
        )
        typer.echo(f"{waiting} that waited will be answered {then}")
    elif done.holding:
        typer.echo("Turns are paused: `keyturn keys resume lane:turns` lets them go on")
    if done.lacks:
        typer.echo("The backup is of an older version: run `keyturn migrate` before anything else")

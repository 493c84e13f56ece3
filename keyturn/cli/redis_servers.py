"""`keyturn redis`: the Redis servers that share the keys; draining one, so that it can be taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act, user_name
from keyturn.cli.deployment import ask

if TYPE_CHECKING:
    from shared.operating.draining import DrainedServer, UndrainedServer

app = typer.Typer(no_args_is_help=True, help="Redis servers: which take keys, and draining one to take it out.")
Name = Annotated[str, typer.Argument(callback=show.readable, help="HOST:PORT/DB, as `keyturn redis list` says it.")]


@app.command("list")
def list_(json: show.Json = False) -> None:
    """List the servers: which take keys, which are drained, and which of those may be taken out of REDIS_URL."""
    from shared.reading.drained import servers_now

    found = ask(servers_now)
    if json:
        show.as_json(found)
        return
    rows = [(one.name, one.verdict, one.since, one.who) for one in found]
    show.table(("server", "state", "drained since", "by"), rows, empty="", folds=("state",))


@app.command()
def drain(name: Name, json: show.Json = False) -> None:
    """Give a server no more keys, in all processes and without a restart. What it holds is finished or moved.

    When `keyturn redis list` says that it is empty, take it out of REDIS_URL.
    """
    from shared.operating.draining import drain as begin

    drained: DrainedServer = act("drain redis", name, lambda pipe: begin(pipe, name, by=user_name()))
    if json:
        show.as_json(drained)
    else:
        typer.echo(f"{show.plain(drained.name)} is drained. `keyturn redis list` says when it is empty.")


@app.command()
def undrain(name: Name, json: show.Json = False) -> None:
    """Let a server have its keys back; or forget one that was taken out of REDIS_URL."""
    from shared.operating.draining import undrain as end

    undrained: UndrainedServer = act("undrain redis", name, lambda pipe: end(pipe, name))
    if json:
        show.as_json(undrained)
    else:
        what = "takes keys again" if undrained.is_listed else "is forgotten"
        typer.echo(f"{show.plain(undrained.name)} {what}.")

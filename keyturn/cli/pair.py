"""`keyturn pair`: who asked to talk to the bot, who was let in, and who is no longer."""

from __future__ import annotations

from typing import Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act
from keyturn.cli.deployment import ask_store

app = typer.Typer(no_args_is_help=True, help="Pairing: let in strangers who were told a code, or take that back.")
Platform = Annotated[str, typer.Argument(callback=show.readable, help="Platform that the person writes on.")]


@app.command("list")
def list_(limit: show.Limit = 50, json: show.Json = False) -> None:
    """List who has a code that is not approved yet, and who was let in."""
    from shared.reading.pairing import paired_people

    people = ask_store(lambda store, _: paired_people(store, limit))
    if json:
        show.as_json(people)
        return
    waiting = [["waiting", each.platform, each.user, each.name, each.at, ""] for each in people.requests]
    approved = [["approved", each.platform, each.user, each.name, each.at, each.by] for each in people.approved]
    titles = ("state", "platform", "user", "name", "at", "by")
    show.table(titles, [*waiting, *approved], empty="nobody was paired, and nobody waits")


@app.command()
def approve(
    platform: Platform,
    code: Annotated[str, typer.Argument(callback=show.readable, help="The code that the person was told.")],
    json: show.Json = False,
) -> None:
    """Let in the person who was told this code. Five wrong codes lock pairing on the platform for an hour."""
    from shared.operating.pairing import approve_code

    paired = act("approve pairing", platform, lambda pipe: approve_code(pipe, platform, code, by="command line"))
    if json:
        show.as_json(paired)
    else:
        typer.echo(f"{show.plain(paired.user)} ({show.plain(paired.name) or 'no name'}) may talk on {platform}")


@app.command()
def revoke(
    platform: Platform,
    user: Annotated[
        str, typer.Argument(callback=show.readable, help="The person's id, as `keyturn pair list` shows it.")
    ],
    json: show.Json = False,
) -> None:
    """Take an approval back: the person's next message is refused."""
    from shared.operating.pairing import revoke_user

    revoked = act("revoke pairing", platform, lambda pipe: revoke_user(pipe, platform, user))
    if json:
        show.as_json(revoked)
    else:
        typer.echo(f"{show.plain(user)} may no longer talk on {platform}")

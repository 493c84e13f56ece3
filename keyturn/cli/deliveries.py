"""`keyturn deliveries`: what waits to be sent, by destination; letting it go, and giving it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act
from keyturn.cli.deployment import ask

if TYPE_CHECKING:
    from shared.reading.destinations import DestinationParts

app = typer.Typer(no_args_is_help=True, help="Deliveries: which chats wait for replies, why, and what was given up.")
To = Annotated[str, typer.Argument(callback=show.readable, help="Destination, such as to:platform:chat.")]
MaybeTo = Annotated[
    str | None, typer.Argument(callback=show.maybe_readable, help="Only this destination, part by part.")
]


@app.command("list")
def list_(destination: MaybeTo = None, limit: show.Limit = 100, json: show.Json = False) -> None:
    """List chats with replies that wait, are ambiguous or were given up, and chats that take nothing from us any more."""
    from shared.reading.destinations import destinations, parts_of_destination

    if destination is not None:
        _print_parts(ask(lambda pipe: parts_of_destination(pipe, destination, limit)), json)
        return
    found = ask(lambda pipe: destinations(pipe, limit))
    if json:
        show.as_json(found)
        return
    columns = ("destination", "state", "until", "waiting", "ambiguous", "buried", "oldest", "closed")
    show.table(columns, [[getattr(one, name) for name in columns] for one in found], empty="nothing waits to be sent")


@app.command()
def release(
    destination: To,
    buried: Annotated[bool, typer.Option("--buried", help="Also send again what was given up.")] = False,
    json: show.Json = False,
) -> None:
    """Let a chat go on now: end its wait, and forget that it takes nothing from us. A wait of the whole bot stays."""
    from shared.operating.deliveries import release_destination

    released = act("release chat", destination, lambda pipe: release_destination(pipe, destination, buried=buried))
    if json:
        show.as_json(released)
        return
    closed = ", no longer closed" if released.was_closed else ""
    again = f", {released.sent_again} sent again" if released.sent_again else ""
    typer.echo(f"{show.plain(destination)} was {released.was}: {released.waiting} waiting{again}{closed}")


@app.command()
def drop(
    destination: To,
    part: Annotated[int | None, typer.Option(min=1, max=2**63 - 1, help="Only this part, by its number.")] = None,
    yes: show.Yes = False,
    json: show.Json = False,
) -> None:
    """Give up what waits for a chat: it is not sent, its record stays, and its dead letters are closed. A part that is
    being sent is left."""
    from shared.operating.deliveries import drop_parts

    if not yes:
        typer.confirm(f"Give up what waits for {show.plain(destination)}?", abort=True)
    dropped = act("drop replies", destination, lambda pipe: drop_parts(pipe, destination, part or 0))
    if json:
        show.as_json(dropped)
        return
    left = f", {dropped.being_sent} being sent and left" if dropped.being_sent else ""
    typer.echo(f"{len(dropped.dropped)} dropped, {len(dropped.letters)} dead letters closed{left}")


def _print_parts(found: DestinationParts, json: bool) -> None:
    if json:
        show.as_json(found)
        return
    columns = ("id", "state", "attempts", "ambiguous", "created_at", "session_key", "reason")
    titles = ("part", *columns[1:4], "at", "key", "reason", "dead letter")
    rows = [[*(getattr(part, name) for name in columns), None] for part in found.waiting]
    rows += [[*(getattr(each.part, name) for name in columns), each.letter] for each in found.buried]
    show.table(titles, rows, empty="nothing waits for this destination", folds=("reason",))

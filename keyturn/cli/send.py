"""`keyturn send`: say something in a chat without having been asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act

if TYPE_CHECKING:
    from shared.targets import Target


def send(
    target: Annotated[
        str,
        typer.Argument(
            callback=show.readable, help="platform, platform:chat or platform:chat:thread; local writes a file."
        ),
    ],
    text: Annotated[str, typer.Argument(callback=show.readable, help="What to say; - reads it from standard input.")],
    also: Annotated[list[str] | None, typer.Option(help="A further target; may be given several times.")] = None,
    key: Annotated[
        str | None, typer.Option(callback=show.maybe_readable, help="The same key again sends nothing twice.")
    ] = None,
    json: show.Json = False,
) -> None:
    """Say something in a chat, through the outbox like every reply. It becomes part of the chat's conversation."""
    from shared.announcing import Announcement, announce
    from shared.ids import fresh_id
    from shared.targets import parse_targets

    targets = parse_targets([target, *(show.readable(one) for one in also or ())])
    said = Announcement(sys.stdin.read() if text == "-" else text, "command line", key or fresh_id())
    named = ", ".join(dict.fromkeys(_named(one) for one in targets))
    told = act("send", named, lambda pipe: announce(pipe, said, targets))
    if json:
        show.as_json(told)
    else:
        columns = ("target", "outcome", "id", "reason")
        rows = [[each.target, each.outcome, each.id or each.path, each.reason] for each in told]
        show.table(columns, rows, empty="")
    if any(each.outcome == "refused" for each in told):
        raise typer.Exit(1)


def _named(target: Target) -> str:
    """The target as the audit log names it: a chat by its destination, so that it is found when its person is forgotten."""
    from shared.lane_key import Destination

    return str(Destination(target.platform, target.account, target.chat)) if target.chat else str(target)

"""`keyturn messages`: what happened to a message, and ending one that waits."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.operating.drop import Dropped
    from shared.pipeline import Pipeline

app = typer.Typer(no_args_is_help=True, help="Follow a message through the pipeline, or drop one that waits.")


@app.command()
def trace(
    id: Annotated[
        str, typer.Argument(callback=show.readable, help="Our message id (in_…) or the platform's event id.")
    ],
    json: show.Json = False,
) -> None:
    """Show each stage that a message has passed, with its time, and where it waits if it has not ended."""
    found = ask(lambda pipe: _find(pipe, id))
    if json:
        show.as_json(found)
    else:
        _print(found)


@app.command()
def drop(
    id: Annotated[
        str, typer.Argument(callback=show.readable, help="Our message id (in_…) or the platform's event id.")
    ],
    tell: Annotated[bool, typer.Option("--tell/--quiet", help="Tell the chat that the message was removed.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: show.Json = False,
) -> None:
    """End a message that waits or runs, without an answer. Its key goes on with the next one."""
    found = ask(lambda pipe: _find(pipe, id))
    if found["state"] != "pending":
        raise CannotDo(f"message {found['id']} does not wait any more: it is {found['state']}")
    if not yes:
        typer.confirm(
            f"Drop {found['id']} of {found['session_key'] or 'an unknown key'} for good?", abort=True, err=True
        )
    dropped = ask(lambda pipe: _drop(pipe, found["id"], tell))
    if json:
        show.as_json({**asdict(dropped), "state": "rejected"})
        return
    typer.echo(f"message {dropped.id} dropped" + (", its chat is told" if dropped.told else ""))
    if dropped.note:
        typer.echo(dropped.note)


async def _drop(pipe: Pipeline, id: str, tell: bool) -> Dropped:
    from shared.operating.drop import drop

    return await drop(pipe, id, tell=tell)


async def _find(pipe: Pipeline, id: str) -> dict[str, Any]:
    from shared.reading.trace import trace, whereabouts

    found = await trace(pipe, id)
    if found is None:
        rows = await pipe.store.journal.of_event(id)
        if len(rows) > 1:
            ids = ", ".join(f"{row['id']} ({row['platform']})" for row in rows)
            raise CannotDo(f"{id} is the event of several messages, name one: {ids}")
        found = await trace(pipe, rows[0]["id"]) if rows else None
    if found is None:
        raise CannotDo(f"no message {id}")
    return {**found, "now": await whereabouts(pipe, found)}


def _print(found: dict[str, Any]) -> None:
    names = {"id": "message", "event_id": "event", "session_key": "key", "turn_id": "turn"}
    fields = ("id", "event_id", "platform", "session_key", "seq", "state", "attempts", "reason", "turn_id", "worker")
    show.record({names.get(field, field): found[field] for field in fields})
    for standing in found["now"].values():
        show.record({"now": now_text(standing)})
    typer.echo()
    stages = [
        (
            stage["stage"] if stage["part"] is None else f"{stage['stage']} {stage['part']}/{len(found['parts'])}",
            stage["at"],
            f"+{stage['ms']} ms" if stage["ms"] is not None else "",
        )
        for stage in found["stages"]
    ]
    show.table(("stage", "at", "after"), stages, empty="only Redis knows of it yet")
    if found["parts"]:
        typer.echo()
        columns = ("part", "destination", "state", "attempts", "ambiguous", "receipt", "reason")
        rows = [(part["ordinal"], *(part[column] for column in columns[1:])) for part in found["parts"]]
        show.table(columns, [(*row[:4], "yes" if row[4] else "no", *row[5:]) for row in rows], empty="")


def now_text(standing: dict[str, Any]) -> str:
    """One line on how a key stands in Redis."""
    what = f"{standing['lane']} key {standing['key']}"
    if standing["state"] == "unknown":
        return f"{what}: {standing['reason']}"
    if standing["state"] == "idle":
        return f"{what}: not in Redis; the housekeeper wakes it"
    text = f"{what}: {standing['state']}, {standing['waiting']} waiting, attempt {standing['attempts']}"
    if standing["until"] is not None:
        text += f", until {show.time(standing['until'])} ({standing['left_ms'] / 1000:+.1f} s)"
    return text + (f", worker {standing['worker']}" if standing["worker"] else "")

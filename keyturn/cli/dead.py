"""`keyturn dead`: what was set aside, and what becomes of it."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask, ask_store
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.operating.replay import Replayed
    from shared.pipeline import Pipeline
    from shared.store import Store

app = typer.Typer(no_args_is_help=True, help="Dead letters: what was set aside, and why; run it again or drop it.")
Id = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="Number of the dead letter.")]


class LetterState(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DROPPED = "dropped"


@app.command("list")
def list_(
    state: Annotated[LetterState, typer.Option(help="Only those in this state.")] = LetterState.OPEN,
    limit: show.Limit = 50,
    json: show.Json = False,
) -> None:
    """List dead letters, the newest first."""
    rows = [_letter(row) for row in ask_store(lambda store, _: store.dead.all(state=state.value, limit=limit))]
    if json:
        show.as_json(rows)
        return
    columns = ("id", "kind", "ref", "session_key", "reason", "attempts", "created_at", "detail")
    titles = ("id", "kind", "ref", "key", "reason", "attempts", "at", "detail")
    show.table(titles, [[row[column] for column in columns] for row in rows], empty=f"no {state.value} dead letters")


@app.command("show")
def show_(id: Id, json: show.Json = False) -> None:
    """Show one dead letter, with what it holds."""
    row = _letter(ask_store(lambda store, _: _find(store, id)))
    payload = row.pop("payload")
    try:
        content = orjson.loads(payload)
    except orjson.JSONDecodeError:
        content = payload
    if json:
        show.as_json({**row, "payload": content})
        return
    show.record(row)
    typer.echo()
    pretty = content if isinstance(content, str) else orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    show.passage("payload", pretty)


@app.command()
def replay(id: Id, json: show.Json = False) -> None:
    """Try once more: an inbound runs as a new message at the end of its key's line, a reply is sent again."""
    replayed = ask(lambda pipe: _replay(pipe, id))
    if json:
        show.as_json(asdict(replayed))
        return
    if replayed.message is not None:
        typer.echo(f"dead letter {id} runs again as {replayed.message}")
    elif replayed.destination is not None:
        typer.echo(f"dead letter {id} is to be sent again to {replayed.destination}")
    if replayed.note:
        typer.echo(replayed.note)


@app.command()
def drop(id: Id, json: show.Json = False) -> None:
    """Close a dead letter without doing anything about it. Its record stays."""
    ask_store(lambda store, _: _drop(store, id))
    if json:
        show.as_json({"id": id, "state": "dropped"})
    else:
        typer.echo(f"dead letter {id} dropped")


async def _find(store: Store, id: int) -> dict[str, Any]:
    row = await store.dead.find(id)
    if row is None:
        raise CannotDo(f"no dead letter {id}")
    return row


async def _replay(pipe: Pipeline, id: int) -> Replayed:
    from shared.operating.replay import replay

    return await replay(pipe, await _find(pipe.store, id))


async def _drop(store: Store, id: int) -> None:
    await _find(store, id)
    if not await store.dead.close(id, "dropped"):
        raise CannotDo(f"dead letter {id} was closed before")


def _letter(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "created_at": show.time(row["created_at"])}

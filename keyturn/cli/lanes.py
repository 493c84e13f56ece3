"""`keyturn keys`: the keys that are not at rest, and letting one go."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.lane import Lane
    from shared.lane.operator import Freed
    from shared.pipeline import Pipeline

app = typer.Typer(no_args_is_help=True, help="Keys: who waits, who is being served, and by which worker.")
Key = Annotated[
    str, typer.Argument(callback=show.readable, help="Session key (agent:…) or destination (to:…) of a delivery.")
]
MAIL_SHOWN = 20


@app.command("list")
def list_(limit: show.Limit = 100, json: show.Json = False) -> None:
    """List the keys that are not idle: awake (queued), leased (a worker has it) or delayed (until its next attempt)."""
    states = ask(lambda pipe: _restless(pipe, limit))
    if json:
        show.as_json(states)
        return
    columns = ("lane", "key", "state", "waiting", "attempts", "until", "worker")
    show.table(columns, [[state[column] for column in columns] for state in states], empty="every key is idle")


@app.command("show")
def show_(key: Key, json: show.Json = False) -> None:
    """Show how one key stands in Redis and in the database, and its waiting mail."""
    found = ask(lambda pipe: _look(pipe, key))
    if json:
        show.as_json(found)
        return
    show.record({name: value for name, value in found.items() if name not in ("mail", "journal")})
    if found["journal"] is not None:
        show.record({f"journal {name}": value for name, value in found["journal"].items()})
    typer.echo()
    rows = [(mail["seq"], mail["id"]) for mail in found["mail"]]
    show.table(("seq", "waiting"), rows, empty="no mail waits in Redis")
    if found["waiting"] > len(rows):
        typer.echo(f"and {found['waiting'] - len(rows)} more")


@app.command()
def release(key: Key, json: show.Json = False) -> None:
    """Take a key from the worker that holds it, or out of its delay, and wake it at once.

    Safe while a turn is running: whoever is served next commits, and the commit of the other is refused. The attempt
    that is cut short does not count.
    """
    freed = ask(lambda pipe: _free(pipe, key))
    was = freed.name.lower()
    if json:
        show.as_json({"key": key, "was": was, "state": "awake"})
    else:
        typer.echo(f"{key} was {was}, now awake")


async def _restless(pipe: Pipeline, limit: int) -> list[dict[str, Any]]:
    from shared.lane.operator import restless

    states = [state for lane in pipe.lanes for state in await restless(lane, limit)]
    return [_dated(asdict(state)) for state in states[:limit]]


async def _look(pipe: Pipeline, key: str) -> dict[str, Any]:
    from shared import keys
    from shared.lane.operator import look, waiting_mail

    lane = lane_of(pipe, key)
    state = await look(lane, key)
    mail = await waiting_mail(lane, key, MAIL_SHOWN)
    journal = await pipe.store.journal.route(key) if lane is not pipe.deliveries else await _open_parts(pipe, key)
    if state.state == "idle" and not mail and journal is None:
        raise CannotDo(f"no key {key}")
    return {
        **_dated(asdict(state)),
        "queue": keys.queue_name(lane.name, keys.partition(key, lane.partitions)),
        "mail": [{"seq": waiting.seq, "id": _mail_id(lane, pipe, waiting.payload)} for waiting in mail],
        "journal": _dated(journal) if journal is not None else None,
    }


async def _free(pipe: Pipeline, key: str) -> Freed:
    from shared.lane.operator import Freed, free

    freed = await free(lane_of(pipe, key), key)
    if freed is Freed.IDLE:
        raise CannotDo(f"{key} is idle: there is nothing to release")
    return freed


def lane_of(pipe: Pipeline, key: str) -> Lane:
    """The lane that a key belongs to: destinations begin with `to:`, control messages' keys with `control:`."""
    return pipe.lane_of(key)


async def _open_parts(pipe: Pipeline, destination: str) -> dict[str, Any] | None:
    parts = await pipe.store.outbox.open_parts(destination, MAIL_SHOWN)
    return {"unsent": [part.id for part in parts]} if parts else None


def _mail_id(lane: Lane, pipe: Pipeline, payload: bytes) -> str:
    """What a piece of mail is about: a message id, a session to take notes of, or the number of an outbox row."""
    from shared.errors import Malformed
    from shared.mail import TakeNotes, decode_mail

    if lane is pipe.deliveries:
        return payload.decode(errors="replace")
    try:
        content = decode_mail(payload)
    except Malformed as error:
        return f"unreadable: {error}"
    return f"notes of {content.session_id}" if isinstance(content, TakeNotes) else content.id


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    return {name: show.time(value) if name in ("until", "created_at") else value for name, value in row.items()}

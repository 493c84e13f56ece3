"""`keyturn messages`: what happened to a message, and dropping one that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act
from keyturn.cli.deployment import ask
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.pipeline import Pipeline
    from shared.reading.keys import KeyState
    from shared.reading.trace import Trace, UnknownKey

app = typer.Typer(no_args_is_help=True, help="Follow a message through the pipeline, or drop one that waits.")
Id = Annotated[str, typer.Argument(callback=show.readable, help="Our message id (in_…) or the platform's event id.")]


@app.command()
def trace(id: Id, json: show.Json = False) -> None:
    """Show each stage that a message has passed, with its time, and where it waits if it has not ended."""
    found, ahead = ask(lambda pipe: _trace(pipe, id))
    if json:
        now = {state.lane: state for state in ahead}
        show.as_json({**show.named(found), "timings": found.timings, "now": now})
    else:
        _print(found, ahead)


@app.command()
def drop(
    id: Id,
    tell: Annotated[bool, typer.Option("--tell/--quiet", help="Tell the chat that the message was removed.")] = True,
    yes: show.Yes = False,
    json: show.Json = False,
) -> None:
    """End a message that waits or runs, without an answer. Its key goes on with the next one."""
    from shared.messages import State
    from shared.operating.messages import drop_message
    from shared.reading.trace import find_message

    found = ask(lambda pipe: find_message(pipe, id))
    if found.state != State.PENDING:
        raise CannotDo(f"message {found.id} does not wait any more: it is {found.state}")
    if not yes:
        question = f"Drop {found.id} of {found.session_key or 'an unknown key'} for good?"
        typer.confirm(show.plain(question), abort=True, err=True)
    dropped = act("drop message", found.id, lambda pipe: drop_message(pipe, found.id, tell=tell))
    if json:
        show.as_json(dropped)
        return
    typer.echo(f"message {dropped.id} dropped" + (", its chat is told" if dropped.told else ""))
    if dropped.note:
        typer.echo(dropped.note)


async def _trace(pipe: Pipeline, id: str) -> tuple[Trace, tuple[KeyState | UnknownKey, ...]]:
    from shared.reading.trace import find_message, keys_ahead, with_steps

    found = await with_steps(pipe, await find_message(pipe, id))
    return found, await keys_ahead(pipe, found)


def _print(found: Trace, ahead: tuple[KeyState | UnknownKey, ...]) -> None:
    names = {"id": "message", "event_id": "event", "session_key": "key", "turn_id": "turn"}
    fields = ("id", "event_id", "platform", "session_key", "seq", "state", "attempts", "reason", "turn_id", "worker")
    show.record({names.get(field, field): getattr(found, field) for field in fields})
    for state in ahead:
        show.record({"now": _now(state)})
    typer.echo()
    stages = [
        (
            passed.stage if passed.part is None else f"{passed.stage} {passed.part}/{len(found.parts)}",
            passed.at,
            f"+{passed.ms} ms" if passed.ms is not None else "",
        )
        for passed in found.stages
    ]
    show.table(("stage", "at", "after"), stages, empty="only Redis knows of it yet")
    if found.parts:
        typer.echo()
        columns = ("ordinal", "destination", "state", "attempts", "ambiguous", "receipt", "reason")
        rows = [[getattr(part, column) for column in columns] for part in found.parts]
        show.table(("part", *columns[1:]), rows, empty="", folds=("reason",))
    if found.steps:
        typer.echo()
        states = {"unknown": "may have happened"}
        calls = [(step.name, states.get(step.state, step.state), step.begun_at) for step in found.steps]
        show.table(("tool call", "state", "begun"), calls, empty="")


def _now(state: KeyState | UnknownKey) -> str:
    """One line on how a key stands in Redis."""
    from shared.reading.keys import KeyPhase
    from shared.reading.trace import UnknownKey

    what = f"{state.lane} key {state.key}"
    if isinstance(state, UnknownKey):
        return f"{what}: {state.reason}"
    if state.state is KeyPhase.IDLE:
        return f"{what}: not in Redis; the housekeeper wakes it"
    text = f"{what}: {state.state}, {state.waiting} waiting, attempt {state.attempts}"
    if state.until is not None and state.left_ms is not None:
        text += f", until {show.plain(state.until)} ({state.left_ms / 1000:+.1f} s)"
    return text + (f", worker {state.worker}" if state.worker else "")

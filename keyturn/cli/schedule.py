"""`keyturn schedule`: what runs by the clock."""

from __future__ import annotations

from typing import Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act, act_in_store
from keyturn.cli.deployment import ask_store

app = typer.Typer(no_args_is_help=True, help="Schedules: let the agent run at a time, and say where its answer goes.")
Id = Annotated[str, typer.Argument(callback=show.readable, help="The schedule, as `keyturn schedule list` shows it.")]


@app.command()
def add(
    when: Annotated[
        str,
        typer.Argument(
            callback=show.readable,
            help="20m, 2026-11-18 09:00, every 2h, every 1d at 09:00 in Europe/Berlin, @daily, or five cron fields.",
        ),
    ],
    text: Annotated[str, typer.Argument(callback=show.readable, help="What the agent is asked.")],
    to: Annotated[
        list[str] | None, typer.Option(help="Where the answer goes; may be repeated. Default: local, a file.")
    ] = None,
    name: Annotated[str, typer.Option(callback=show.readable, help="What people call it.")] = "",
    policy: Annotated[
        list[str] | None,
        typer.Option(help="missed=last|skip|all, overlap=skip|queue|all or window=SECONDS; may be repeated."),
    ] = None,
    json: show.Json = False,
) -> None:
    """Let the agent run at a time. Says what was understood, and the next times."""
    from shared.operating.schedules import WantedSchedule, add_schedule
    from shared.targets import TargetKind

    policies = dict(_policy(one) for one in policy or ())
    targets = tuple(show.readable(target) for target in to or (TargetKind.FILE.value,))
    wanted = WantedSchedule(
        when,
        text,
        targets,
        name,
        policies.get("missed", "last"),
        policies.get("overlap", "skip"),
        _seconds(policies["window"]) if "window" in policies else None,
    )
    added = act("add schedule", wanted.name or "without a name", lambda pipe: add_schedule(pipe, wanted))
    if json:
        show.as_json(added)
    else:
        about = show.named(added) | {"to": ", ".join(added.to), "next": ", ".join(map(show.plain, added.next))}
        show.record(about)


def _policy(written: str) -> tuple[str, str]:
    name, _, value = show.readable(written).partition("=")
    if name not in ("missed", "overlap", "window") or not value:
        raise typer.BadParameter("--policy takes missed=…, overlap=… or window=…")
    return name, value


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise typer.BadParameter("window is a whole number of seconds")
    return float(text)


@app.command("list")
def list_(limit: show.Limit = 100, json: show.Json = False) -> None:
    """List the schedules of everybody."""
    from shared.reading.schedules import listed_schedules

    found = ask_store(lambda store, _: listed_schedules(store, limit))
    if json:
        show.as_json(found)
        return
    rows = [
        [one.id, one.name, one.state, one.when, one.next[0] if one.next else None, ", ".join(one.to)] for one in found
    ]
    show.table(("id", "name", "state", "when", "next", "to"), rows, empty="there are no schedules")


@app.command("show")
def show_(id: Id, limit: show.Limit = 20, json: show.Json = False) -> None:
    """Show a schedule, and what became of its newest slots."""
    from shared.reading.schedules import one_schedule

    found = ask_store(lambda store, _: one_schedule(store, id, limit))
    if json:
        show.as_json(found)
        return
    about = show.named(found.schedule)
    show.record(about | {"to": ", ".join(found.schedule.to), "next": ", ".join(map(show.plain, found.schedule.next))})
    typer.echo()
    rows = [[slot.at, slot.state, slot.turn, slot.by_hand, slot.reason, slot.id] for slot in found.slots]
    show.table(("slot", "state", "turn", "by hand", "reason", "message"), rows, empty="no slot has come yet")


@app.command()
def remove(id: Id, json: show.Json = False) -> None:
    """Forget a schedule and its slots. A run that has begun goes on."""
    from shared.operating.schedules import remove_schedule

    act_in_store("remove schedule", id, lambda store: remove_schedule(store, id))
    if json:
        show.as_json({"id": id, "state": "removed"})
    else:
        typer.echo(f"{show.plain(id)} is removed")


@app.command()
def pause(id: Id, json: show.Json = False) -> None:
    """Let no more slots run until the schedule is resumed."""
    from shared.operating.schedules import pause_schedule

    paused = act_in_store("pause schedule", id, lambda store: pause_schedule(store, id))
    if json:
        show.as_json(paused)
    else:
        typer.echo(f"{show.plain(id)} is paused")


@app.command()
def resume(id: Id, json: show.Json = False) -> None:
    """Let a paused schedule go on with its next slot. Slots that came meanwhile do not run."""
    from shared.operating.schedules import resume_schedule

    resumed = act_in_store("resume schedule", id, lambda store: resume_schedule(store, id))
    if json:
        show.as_json(resumed)
    else:
        typer.echo(f"{show.plain(id)} goes on at {show.plain(resumed.next[0])}")


@app.command()
def run(id: Id, json: show.Json = False) -> None:
    """Run a schedule now, beside its own slots."""
    from shared.operating.schedules import run_schedule

    begun = act("run schedule", id, lambda pipe: run_schedule(pipe, id))
    if json:
        show.as_json(begun)
    else:
        typer.echo(f"begun as message {begun.id}: see `keyturn messages trace {begun.id}`")

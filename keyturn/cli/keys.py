"""`keyturn keys`: the keys that are not idle, one key's mailbox; releasing, stopping, pausing and resuming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keyturn.cli import show
from keyturn.cli.acting import act, user_name
from keyturn.cli.deployment import ask
from shared.finding import counted

if TYPE_CHECKING:
    from shared.operating.pauses import PausedScope, ResumedScope

app = typer.Typer(no_args_is_help=True, help="Keys: which wait, which are being served, and by which worker.")
Key = Annotated[
    str, typer.Argument(callback=show.readable, help="Session key (agent:…) or destination (to:…) of a delivery.")
]


@app.command("list")
def list_(limit: show.Limit = 100, json: show.Json = False) -> None:
    """List the keys that are not idle: awake (queued), leased (a worker has it), delayed (until its next attempt) or
    paused (until it is resumed)."""
    from shared.reading.keys import all_keys_at_work

    states = ask(lambda pipe: all_keys_at_work(pipe, limit))
    if json:
        show.as_json(states)
        return
    columns = ("lane", "key", "state", "waiting", "attempts", "until", "worker")
    show.table(columns, [[getattr(state, name) for name in columns] for state in states], empty="every key is idle")


@app.command("show")
def show_(key: Key, json: show.Json = False) -> None:
    """Show how one key stands in Redis and in the database, and its waiting mail."""
    from shared.reading.mailbox import mailbox_of

    found = ask(lambda pipe: mailbox_of(pipe, key))
    about = {**show.named(found.state), "queue": found.queue}
    if json:
        show.as_json({**about, "mail": found.mail, "journal": found.journal})
        return
    show.record(about)
    if found.journal is not None:
        show.record({f"journal {name}": value for name, value in show.named(found.journal).items()})
    typer.echo()
    show.table(("seq", "waiting"), [(mail.seq, mail.id) for mail in found.mail], empty="no mail waits in Redis")
    if found.state.waiting > len(found.mail):
        typer.echo(f"and {found.state.waiting - len(found.mail)} more")


@app.command()
def release(key: Key, json: show.Json = False) -> None:
    """Take a key from the worker that holds it, or out of its delay, and wake it at once.

    Safe while a turn is running: whoever commits first wins, and the other's commit is refused. The attempt that is cut
    short is not counted.
    """
    from shared.operating.keys import release_key

    released = act("release key", key, lambda pipe: release_key(pipe, key))
    if json:
        show.as_json(released)
    else:
        typer.echo(f"{show.plain(key)} was {released.was}, now {released.state}")


@app.command()
def stop(key: Key, json: show.Json = False) -> None:
    """End the running turn of a session key and drop what waits, as /stop does in the chat. Later messages are answered."""
    from shared.finding import counted
    from shared.operating.keys import stop_key

    stopped = act("stop key", key, lambda pipe: stop_key(pipe, key))
    if json:
        show.as_json(stopped)
    else:
        what = "its turn was stopped" if stopped.was_running else "no turn was running"
        typer.echo(f"{show.plain(key)}: {what}, {counted(stopped.messages, 'message gets', 'messages get')} no answer")


Scope = Annotated[
    str,
    typer.Argument(
        callback=show.readable,
        help="all, lane:turns, lane:deliveries, lane:control, platform:NAME, a chat (to:…) or a conversation (agent:…).",
    ),
]


@app.command()
def pause(scope: Scope, json: show.Json = False) -> None:
    """Hold back a conversation, a chat, a platform, a lane or everything. Messages are accepted and wait, in order.

    A turn or a send that runs now is not cut short; no other begins. Control messages such as /stop are held back by
    lane:control alone.
    """
    from shared.operating.pauses import pause as begin

    paused: PausedScope = act("pause", scope, lambda pipe: begin(pipe, scope, by=user_name()))
    if json:
        show.as_json(paused)
    else:
        typer.echo(f"{show.plain(paused.scope)} is paused. {show.plain(paused.note) if paused.note else ''}".strip())


@app.command()
def resume(scope: Scope, json: show.Json = False) -> None:
    """Let something go on that was paused, and wake what waits behind it. Narrower pauses stay."""
    from shared.operating.pauses import resume as end

    resumed: ResumedScope = act("resume", scope, lambda pipe: end(pipe, scope))
    if json:
        show.as_json(resumed)
        return
    note = f" {show.plain(resumed.note)}" if resumed.note else ""
    typer.echo(f"{show.plain(resumed.scope)} goes on: {counted(resumed.woken, 'key', 'keys')} woken.{note}")


@app.command()
def pauses(json: show.Json = False) -> None:
    """List what is paused: by whom, since when, and what waits behind it."""
    from shared.reading.pauses import pauses_now

    found = ask(pauses_now)
    if json:
        show.as_json(found)
        return
    rows = [(one.scope, one.who, one.since, one.waiting) for one in found]
    show.table(("scope", "by", "since", "waiting behind it"), rows, empty="nothing is paused")

"""`keyturn dead`: what was set aside, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from keyturn.cli import show
from keyturn.cli.acting import act, act_in_store, operator
from keyturn.cli.deployment import ask, ask_store
from shared.finding import counted
from shared.reading.dead_letters import LetterState, dead_letter, dead_letters

if TYPE_CHECKING:
    from shared.operating.dead_bulk import LetterAction, LetterFilter
    from shared.pipeline import Pipeline

app = typer.Typer(no_args_is_help=True, help="Dead letters: what was set aside, and why; run it again or drop it.")
Id = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="Number of the dead letter.")]
NewText = Annotated[
    str | None, typer.Option("--text", callback=show.maybe_readable, help="Say this instead: only for a message.")
]


@app.command("list")
def list_(
    state: Annotated[LetterState, typer.Option(help="Only those in this state.")] = LetterState.OPEN,
    limit: show.Limit = 50,
    json: show.Json = False,
) -> None:
    """List dead letters, the newest first."""
    letters = ask_store(lambda store, _: dead_letters(store, state, limit))
    if json:
        show.as_json(letters)
        return
    columns = ("id", "kind", "ref", "session_key", "reason", "attempts", "created_at", "detail")
    titles = ("id", "kind", "ref", "key", "reason", "attempts", "at", "detail")
    rows = [[getattr(letter, column) for column in columns] for letter in letters]
    show.table(titles, rows, empty=f"no {state} dead letters", folds=("detail",))


@app.command("show")
def show_(id: Id, json: show.Json = False) -> None:
    """Show one dead letter, with what it holds."""
    letter = ask_store(lambda store, _: dead_letter(store, id))
    about = show.named(letter)
    payload = about.pop("payload")
    if letter.replayed_as is not None:
        about["replayed_as"] = letter.replayed_as
    try:
        content = orjson.loads(payload)
    except orjson.JSONDecodeError:
        content = payload
    if json:
        show.as_json({**about, "payload": content})
        return
    show.record(about)
    typer.echo()
    pretty = content if isinstance(content, str) else orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    show.passage("payload", pretty)


@app.command()
def replay(id: Id, text: NewText = None, json: show.Json = False) -> None:
    """Try once more: an inbound runs as a new message at the end of its key's line, a reply is sent again."""
    from shared.operating.dead_letters import edit_and_replay_letter, replay_letter

    replayed = act(
        "replay dead letter" if text is None else "edit and replay dead letter",
        str(id),
        lambda pipe: replay_letter(pipe, id) if text is None else edit_and_replay_letter(pipe, id, text),
    )
    if json:
        show.as_json(replayed)
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
    from shared.operating.dead_letters import drop_letter

    dropped = act_in_store("drop dead letter", str(id), lambda store: drop_letter(store, id))
    if json:
        show.as_json(dropped)
    else:
        typer.echo(f"dead letter {id} dropped")


Kind = Annotated[str | None, typer.Option(help="Only letters of this kind: inbound, reply, mail or request.")]
Reason = Annotated[str | None, typer.Option(help="Only letters with this reason.")]
OfKey = Annotated[str | None, typer.Option("--key", callback=show.maybe_readable, help="Only letters of this key.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many match.")]


@app.command("replay-all")
def replay_all(
    kind: Kind = None, reason: Reason = None, key: OfKey = None, dry_run: DryRun = False, json: show.Json = False
) -> None:
    """Replay every open dead letter that matches now, oldest first. Ends with 1 where a store stopped it: run it again."""
    from shared.operating.dead_bulk import LetterAction, LetterFilter

    _bulk(LetterAction.REPLAY, LetterFilter(kind, reason, key), dry_run, json)


@app.command("drop-all")
def drop_all(
    kind: Kind = None, reason: Reason = None, key: OfKey = None, dry_run: DryRun = False, json: show.Json = False
) -> None:
    """Drop every open dead letter that matches now. Their records stay. Ends with 1 where a store stopped it: run it again."""
    from shared.operating.dead_bulk import LetterAction, LetterFilter

    _bulk(LetterAction.DROP, LetterFilter(kind, reason, key), dry_run, json)


def _bulk(action: LetterAction, wanted: LetterFilter, dry_run: bool, json: bool) -> None:
    from keyturn.cli.progress import progress
    from shared.operating.dead_bulk import BulkRun, MatchingLetters, bulk_run, go_on, matching_letters

    async def work(pipe: Pipeline) -> tuple[MatchingLetters, BulkRun]:
        found = await matching_letters(pipe.store, wanted)
        run, by = bulk_run(action, wanted, found), operator()
        if not dry_run:
            with progress("dead letters", run.count) as advance:
                while not run.is_over and not run.stopped:
                    run = await go_on(pipe, run, by)
                    advance(run.dealt_with)
        return found, run

    found, run = ask(work)
    if json:
        result = {"done": run.done, "failed": run.failed, "left": run.left, "stopped": run.stopped or None}
        show.as_json({"matching": found, "result": None if dry_run else result})
    else:
        letters = counted(found.count, "open dead letter", "open dead letters")
        conversations = counted(found.conversations, "conversation", "conversations")
        typer.echo(f"{letters} of {conversations} {'matches' if found.count == 1 else 'match'}")
        if not dry_run:
            typer.echo(f"{action}: {run.done} done")
            for why, count in run.failed:
                typer.echo(f"{count} not: {show.plain(why)}")
    if run.stopped:
        typer.echo(f"stopped with {run.left} left: {show.plain(run.stopped)}. Run it again to go on", err=True)
        raise typer.Exit(1)

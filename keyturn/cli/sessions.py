"""`keyturn sessions`: conversations and their transcripts."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from keyturn.cli import show
from keyturn.cli.acting import act, act_in_store
from keyturn.cli.deployment import ask_store
from shared.clock import now_ms
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.person import Person
    from shared.reading.sessions import StoredSession, TranscriptRow
    from shared.store import Store

app = typer.Typer(no_args_is_help=True, help="Conversations and their transcripts.")
KeyOrId = Annotated[str, typer.Argument(callback=show.readable, help="Session key (agent:…) or id (ses_…).")]


@app.command("list")
def list_(
    limit: show.Limit = 50,
    active_minutes: Annotated[
        int | None, typer.Option(min=0, help="Only those active in the last so many minutes.")
    ] = None,
    json: show.Json = False,
) -> None:
    """List sessions, the most recently active first, with their titles and first words."""
    from shared.reading.sessions import sessions

    since = 0 if active_minutes is None else now_ms() - active_minutes * 60_000
    listed = ask_store(lambda store, _: sessions(store, limit, since))
    if json:
        show.as_json(listed)
        return
    columns = ("id", "session_key", "title", "preview", "message_count", "version", "updated_at")
    titles = ("session", "key", "title", "begins", "messages", "version", "updated")
    rows = [[getattr(one, column) for column in columns] for one in listed]
    show.table(titles, rows, empty="no sessions", folds=("title", "begins"))


@app.command("show")
def show_(
    key_or_id: KeyOrId,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The last so many messages.")] = 50,
    json: show.Json = False,
) -> None:
    """Show the end of a conversation, oldest message first."""
    session, rows = ask_store(lambda store, _: _with_rows(store, key_or_id, limit))
    if json:
        show.as_json({"session": session, "messages": rows})
        return
    show.record(show.named(session))
    for row in rows:
        typer.echo()
        gone = "" if row.active else " (undone)"
        show.passage(f"{row.n} {row.role} {show.plain(row.created_at)}{gone}", row.text)
    if len(rows) < session.message_count:
        typer.echo(f"\n{session.message_count - len(rows)} earlier messages: see --limit")


@app.command()
def search(
    words: Annotated[
        list[str],
        typer.Argument(
            callback=lambda words: [show.readable(word) for word in words],
            help='What to look for; "quoted": exactly so.',
        ),
    ],
    key: Annotated[str | None, typer.Option(help="As the owner of this session key's session.")] = None,
    owner: Annotated[str | None, typer.Option(help="In this owner's sessions (platform:u=id).")] = None,
    limit: show.Limit = 20,
    json: show.Json = False,
) -> None:
    """Find what was said: everybody's sessions, or those of one owner."""
    from shared.reading.sessions import Scope
    from shared.reading.sessions import search as find

    if key is not None and owner is not None:
        raise typer.BadParameter("--key or --owner, not both")
    found = ask_store(lambda store, _: find(store, " ".join(words), Scope(key, owner), limit))
    if json:
        show.as_json(found)
        return
    columns = ("session_id", "title", "said_at", "role", "rows", "snippet")
    titles = ("session", "title", "said", "by", "rows", "text")
    rows = [[getattr(hit, column) for column in columns] for hit in found.hits]
    show.table(titles, rows, empty="nothing found", folds=("title", "text"))
    if not found.complete:
        typer.echo("not everything could be looked at: there may be more", err=True)


@app.command()
def export(
    key_or_id: Annotated[str | None, typer.Argument(callback=show.maybe_readable, help="Session key or id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    user: Annotated[
        str | None, typer.Option(callback=show.maybe_readable, help="All that is kept of a person: PLATFORM:ID.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file, which must not exist. Unset: print.")] = None,
) -> None:
    """Give conversations back as JSON lines: one for each session, then one for each of its messages."""
    if [key_or_id is not None, everything, user is not None].count(True) != 1:
        raise typer.BadParameter("name a session key or id, or give --all or --user")
    if user is not None:
        person = _person(user)
        lines = ask_store(lambda store, _: _write_person(store, person, out))
        if out is not None:
            typer.echo(f"{lines} lines")
        return
    sessions, rows = ask_store(lambda store, _: _write(store, key_or_id, out))
    if out is not None:
        typer.echo(f"{sessions} sessions, {rows} messages")


@app.command()
def delete(
    key_or_id: KeyOrId,
    yes: show.Yes = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then write SQLite's file anew, so that its unused space holds no word.")
    ] = False,
    json: show.Json = False,
) -> None:
    """Delete a conversation with all that was said in it for good. The next message of its key begins an empty one."""
    from shared.operating.sessions import check_vacuum, delete_session
    from shared.operating.sessions import vacuum as vacuum_file
    from shared.reading.sessions import session

    if vacuum:
        ask_store(lambda store, _: check_vacuum(store))
    found = ask_store(lambda store, _: session(store, key_or_id))
    if not yes:
        typer.confirm(f"Delete {found.id} with {found.message_count} messages for good?", abort=True, err=True)
    deleted = act_in_store("delete session", found.id, lambda store: delete_session(store, found))
    if vacuum:
        ask_store(lambda store, _: vacuum_file(store))
    if json:
        show.as_json(deleted)
    else:
        typer.echo(f"{deleted.id} deleted")


@app.command()
def forget(
    user: Annotated[str, typer.Option(callback=show.readable, help="Who: PLATFORM:ID.")],
    yes: show.Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be gone.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then write SQLite's file anew, so that its unused space holds no word.")
    ] = False,
    json: show.Json = False,
) -> None:
    """Forget a person: conversations, notes, files, schedules, costs. Ends with 1 where something still names them."""
    from shared.operating.forgetting import forget_person
    from shared.operating.sessions import check_vacuum
    from shared.operating.sessions import vacuum as vacuum_file

    person = _person(user)
    if dry_run:
        _count_person(person, json)
        return
    if vacuum:
        ask_store(lambda store, _: check_vacuum(store))
    if not yes:
        typer.confirm(f"Forget everything of {user} for good?", abort=True, err=True)
    # The audit log must not name a person who is forgotten.
    forgotten = act("forget person", person.platform, lambda pipe: forget_person(pipe, person))
    if vacuum:
        ask_store(lambda store, _: vacuum_file(store))
    if json:
        show.as_json(forgotten)
    else:
        show.record({name: value for name, value in show.named(forgotten).items() if name != "left"})
        for one in forgotten.left:
            typer.echo(f"{one.table}: {one.rows} rows still name {person.id}", err=True)
        if not forgotten.left:
            typer.echo(f"no table names {person.id} any more")
    if forgotten.left:
        raise typer.Exit(1)


def _count_person(person: Person, json: bool) -> None:
    from shared.reading.person import kept_of_person

    kept = ask_store(lambda store, _: kept_of_person(store, person))
    if json:
        show.as_json(kept)
    else:
        show.record(show.named(kept) | {"ids": ", ".join(kept.ids)})


def _person(text: str) -> Person:
    from shared.errors import Malformed
    from shared.person import Person

    try:
        return Person.parse(text)
    except Malformed as error:
        raise typer.BadParameter(str(error)) from None


async def _write_person(store: Store, person: Person, out: Path | None) -> int:
    """Write the lines as they come. Returns how many there were."""
    from shared.reading.person import export_person

    lines = 0
    with _opened(out) as file:
        async for line in export_person(store, person):
            file.write(line.decode() + "\n")
            lines += 1
        file.flush()
    return lines


async def _with_rows(store: Store, key_or_id: str, limit: int) -> tuple[StoredSession, list[TranscriptRow]]:
    from shared.reading.sessions import last_rows, session

    found = await session(store, key_or_id)
    return found, await last_rows(store, found.id, limit)


async def _write(store: Store, key_or_id: str | None, out: Path | None) -> tuple[int, int]:
    """Write the lines as they come. Returns how many sessions and rows there were."""
    from shared.reading.export import ExportedSession, export_all, export_session, json_line
    from shared.reading.sessions import session

    items = export_all(store) if key_or_id is None else export_session(store, await session(store, key_or_id))
    sessions = rows = 0
    with _opened(out) as file:
        async for item in items:
            file.write(json_line(item).decode() + "\n")
            if isinstance(item, ExportedSession):
                sessions += 1
            else:
                rows += 1
        file.flush()
    return sessions, rows


def _opened(out: Path | None) -> AbstractContextManager[TextIO]:
    """A new file that only this user may read, for it holds what people said; standard output where no file is named."""
    if out is None:
        return nullcontext(sys.stdout)
    try:
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except OSError as error:
        raise CannotDo(f"{out}: {error.strerror}") from None

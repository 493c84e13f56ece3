"""`keyturn sessions`: conversations and their transcripts."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import orjson
import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask_store
from shared.clock import now_ms
from shared.errors import CannotDo

if TYPE_CHECKING:
    from shared.store import Store
    from shared.store.search import Found

app = typer.Typer(no_args_is_help=True, help="Conversations and their transcripts.")


@app.command("list")
def list_(
    limit: show.Limit = 50,
    active_minutes: Annotated[
        int | None, typer.Option(min=0, help="Only those active in the last so many minutes.")
    ] = None,
    json: show.Json = False,
) -> None:
    """List sessions, the most recently active first, with their titles and first words."""
    since = 0 if active_minutes is None else now_ms() - active_minutes * 60_000
    rows = [_session(row) for row in ask_store(lambda store, _: store.sessions.listed(limit, since))]
    if json:
        show.as_json(rows)
        return
    columns = ("id", "session_key", "title", "preview", "message_count", "version", "updated_at")
    titles = ("session", "key", "title", "begins", "messages", "version", "updated")
    show.table(titles, [[row[column] for column in columns] for row in rows], empty="no sessions")


@app.command("show")
def show_(
    key_or_id: Annotated[str, typer.Argument(callback=show.readable, help="Session key (agent:…) or id (ses_…).")],
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The last so many messages.")] = 50,
    json: show.Json = False,
) -> None:
    """Show the end of a conversation, oldest message first."""
    session, messages = ask_store(lambda store, _: _load(store, key_or_id, limit))
    if json:
        show.as_json({"session": session, "messages": messages})
        return
    show.record(session)
    for message in messages:
        typer.echo()
        gone = "" if message["active"] else " (undone)"
        show.passage(f"{message['n']} {message['role']} {message['created_at']}{gone}", message["text"])
    if len(messages) < session["message_count"]:
        typer.echo(f"\n{session['message_count'] - len(messages)} earlier messages: see --limit")


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
    owner: Annotated[str | None, typer.Option(help="In this owner's sessions (telegram:u=42).")] = None,
    limit: show.Limit = 20,
    json: show.Json = False,
) -> None:
    """Find what was said: everybody's sessions, or those of one owner."""
    if key is not None and owner is not None:
        raise typer.BadParameter("--key or --owner, not both")
    found = ask_store(lambda store, _: _search(store, " ".join(words), key, owner, limit))
    hits = [
        {**asdict(hit), "said_at": show.time(hit.said_at), "updated_at": show.time(hit.updated_at)}
        for hit in found.hits
    ]
    if json:
        show.as_json({"hits": hits, "complete": found.complete})
        return
    columns = ("session_id", "title", "said_at", "role", "rows", "snippet")
    titles = ("session", "title", "said", "by", "rows", "text")
    show.table(titles, [[hit[column] for column in columns] for hit in hits], empty="nothing found")
    if not found.complete:
        typer.echo("not everything could be looked at: there may be more", err=True)


async def _search(store: Store, words: str, key: str | None, owner: str | None, limit: int) -> Found:
    if key is not None:
        session, _ = await store.transcript.load(key, "")
        owner = session.owner
        if owner is None:
            raise CannotDo(f"no session with an owner: {key}")
    found = await store.search.find(words, owner, limit)
    if found is None:
        raise CannotDo("there is no word in that to look for")
    return found


@app.command("export")
def export_(
    key_or_id: Annotated[str | None, typer.Argument(callback=show.maybe_readable, help="Session key or id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file, which must not exist. Unset: print.")] = None,
) -> None:
    """Give conversations back as JSON lines: one for each session, then one for each of its messages."""
    if (key_or_id is None) != everything:
        raise typer.BadParameter("name a session key or id, or give --all")
    sessions, messages = ask_store(lambda store, _: _export(store, key_or_id, out))
    if out is not None:
        typer.echo(f"{sessions} sessions, {messages} messages")


@app.command()
def delete(
    key_or_id: Annotated[str, typer.Argument(callback=show.readable, help="Session key (agent:…) or id (ses_…).")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then write SQLite's file anew, so that its unused space holds no word.")
    ] = False,
    json: show.Json = False,
) -> None:
    """Delete a conversation with all that was said in it for good. The next message of its key begins an empty one."""
    if vacuum and not ask_store(lambda store, _: _is_sqlite(store)):
        raise CannotDo("--vacuum is for SQLite: ask PostgreSQL for VACUUM FULL yourself, where its files matter")
    row = ask_store(lambda store, _: _found(store, key_or_id))
    if not yes:
        typer.confirm(f"Delete {row['id']} with {row['message_count']} messages for good?", abort=True, err=True)
    if not ask_store(lambda store, _: store.delete(row["id"], row["version"])):
        raise CannotDo(f"{row['id']} has gone on meanwhile: nothing was deleted")
    if vacuum:
        ask_store(lambda store, _: _vacuum(store))
    if json:
        show.as_json({"id": row["id"], "messages": row["message_count"], "state": "deleted"})
    else:
        typer.echo(f"{row['id']} deleted")


async def _is_sqlite(store: Store) -> bool:
    return store.database.dialect == "sqlite"


async def _vacuum(store: Store) -> None:
    from shared.store.database.sqlite import Sqlite

    if isinstance(store.database, Sqlite):
        await store.database.vacuum()


async def _found(store: Store, key_or_id: str) -> dict[str, Any]:
    row = await store.sessions.find(key_or_id)
    if row is None:
        raise CannotDo(f"no session {key_or_id}")
    return row


async def _export(store: Store, key_or_id: str | None, out: Path | None) -> tuple[int, int]:
    """Write the lines as they come; how many of each kind there were."""
    from shared.reading.export import export_all, export_session

    lines: AsyncIterator[dict[str, Any]]
    lines = export_all(store) if key_or_id is None else export_session(store, await _found(store, key_or_id))
    sessions = messages = 0
    with _opened(out) as file:
        async for line in lines:
            file.write(orjson.dumps(line).decode() + "\n")
            sessions += line["type"] == "session"
            messages += line["type"] == "message"
        file.flush()
    return sessions, messages


def _opened(out: Path | None) -> AbstractContextManager[TextIO]:
    """For this user only: it is what people said. Nothing is overwritten."""
    if out is None:
        return nullcontext(sys.stdout)
    try:
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except OSError as error:
        raise CannotDo(f"{out}: {error.strerror}") from None


async def _load(store: Store, key_or_id: str, limit: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    row = await _found(store, key_or_id)
    messages = await store.sessions.messages(row["id"], limit)
    return _session(row), [_message(message) for message in messages]


def _session(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "created_at": show.time(row["created_at"]), "updated_at": show.time(row["updated_at"])}


def _message(row: dict[str, Any]) -> dict[str, Any]:
    active = bool(row["active"])
    return {**row, "active": active, "data": orjson.loads(row["data"]), "created_at": show.time(row["created_at"])}

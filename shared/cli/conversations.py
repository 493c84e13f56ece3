"""`keyturn sessions`: conversations and their transcripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from shared.cli import show
from shared.cli.deployment import ask
from shared.clock import now_ms

if TYPE_CHECKING:
    from shared.pipeline import Pipeline
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
    rows = [_session(row) for row in ask(lambda pipe: pipe.store.titles.listed(limit, since))]
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
    session, messages = ask(lambda pipe: _load(pipe, key_or_id, limit))
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
    found = ask(lambda pipe: _search(pipe, " ".join(words), key, owner, limit))
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


async def _search(pipe: Pipeline, words: str, key: str | None, owner: str | None, limit: int) -> Found:
    if key is not None:
        session, _ = await pipe.store.transcript.load(key, "")
        owner = session.owner
        if owner is None:
            raise show.Refused(f"no session with an owner: {key}")
    found = await pipe.store.search.find(words, owner, limit)
    if found is None:
        raise show.Refused("there is no word in that to look for")
    return found


async def _load(pipe: Pipeline, key_or_id: str, limit: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    row = await pipe.store.transcript.find(key_or_id)
    if row is None:
        raise show.Refused(f"no session {key_or_id}")
    messages = await pipe.store.transcript.messages(row["id"], limit)
    return _session(row), [_message(message) for message in messages]


def _session(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "created_at": show.time(row["created_at"]), "updated_at": show.time(row["updated_at"])}


def _message(row: dict[str, Any]) -> dict[str, Any]:
    active = bool(row["active"])
    return {**row, "active": active, "data": orjson.loads(row["data"]), "created_at": show.time(row["created_at"])}

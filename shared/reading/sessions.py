"""Sessions and their transcripts: listed, shown and searched. Lists read no whole transcript."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from shared.clock import moment
from shared.errors import CannotDo, NotFound
from shared.store import Store
from shared.store.database import Row
from shared.store.search import Hit
from shared.synthetic import is_synthetic
from shared.value import value

NEWEST = (2**62, "")  # the place before the last active session


@value
class StoredSession:
    """A session as the database has it. `version` grows with every commit: a change is refused if it has moved on."""

    id: str
    session_key: str
    version: int
    message_count: int
    created_at: datetime
    updated_at: datetime
    title: str | None
    parent_id: str | None
    ended_at: datetime | None
    end_reason: str | None


@value
class ListedSession(StoredSession):
    """A session with the first words that were said in it."""

    preview: str


@value
class TranscriptRow:
    """One row of a transcript. Not active: /undo or the like took it out of the conversation."""

    n: int
    role: str
    text: str
    data: Mapping[str, Any]
    turn_id: str | None
    inbound_id: str | None
    active: bool
    created_at: datetime


@value
class SearchHit:
    """A session where the words were found: its newest such row, and how many were seen."""

    session_id: str
    session_key: str
    title: str | None
    updated_at: datetime
    n: int
    role: str
    said_at: datetime
    snippet: str
    rows: int


@value
class SearchResult:
    """What a search found. Not complete: some rows could not be looked at, so there may be more."""

    hits: tuple[SearchHit, ...]
    complete: bool


@value
class Scope:
    """Whose sessions are searched: those of an owner, of the owner of a session key's session, or everybody's."""

    session_key: str | None = None
    owner: str | None = None


async def sessions(store: Store, limit: int, active_since: int = 0) -> list[ListedSession]:
    """Sessions active at or after a time (wall clock, ms), the last active first."""
    rows = await store.sessions.listed(limit, active_since)
    return [ListedSession(*_stored(row), row["preview"]) for row in rows if not is_synthetic(row["session_key"])]


async def session_page(store: Store, limit: int, before: tuple[int, str] = NEWEST) -> list[StoredSession]:
    """Sessions before a place, the last active first, without any text. The place of a session is `page_place`."""
    found: list[StoredSession] = []
    while len(found) < limit:  # what is left out takes no place: a page that is not full is the last one
        rows = await store.overview.sessions(before, limit)
        found += [session_from(row) for row in rows if not is_synthetic(row["session_key"])]
        if len(rows) < limit:
            break
        before = (rows[-1]["updated_at"], rows[-1]["id"])
    return found[:limit]


def page_place(stored: StoredSession) -> tuple[int, str]:
    """Where a session stands in `session_page`: the page before this place begins with the session behind it."""
    return round(stored.updated_at.timestamp() * 1000), stored.id


async def session(store: Store, key_or_id: str) -> StoredSession:
    """The session that a key talks to now, or the one with that id; NotFound where there is neither."""
    row = await store.sessions.find(key_or_id)
    if row is None:
        raise NotFound(f"no session {key_or_id}: see `keyturn sessions list`")
    return session_from(row)


async def last_rows(store: Store, session_id: str, limit: int) -> list[TranscriptRow]:
    """The end of a transcript, oldest row first."""
    return [_row(row) for row in await store.sessions.messages(session_id, limit)]


async def search(store: Store, words: str, scope: Scope, limit: int) -> SearchResult:
    """The sessions that say all the words, newest first; CannotDo where there is no word to look for."""
    owner = scope.owner
    if scope.session_key is not None:
        owner = (await store.transcript.bare(scope.session_key)).owner
        if owner is None:
            raise NotFound(f"no session with an owner: {scope.session_key}")
    result = await store.search.find(words, owner, limit)
    if result is None:
        raise CannotDo("there is no word in that to look for")
    return SearchResult(tuple(map(_hit, result.hits)), result.complete)


def session_from(row: Row) -> StoredSession:
    """A row of the sessions table as a value."""
    return StoredSession(*_stored(row))


def _stored(
    row: Row,
) -> tuple[str, str, int, int, datetime, datetime, str | None, str | None, datetime | None, str | None]:
    ended_at = moment(row["ended_at"]) if row["ended_at"] is not None else None
    about = (row["id"], row["session_key"], row["version"], row["message_count"])
    times = (moment(row["created_at"]), moment(row["updated_at"]))
    return *about, *times, row["title"], row["parent_id"], ended_at, row["end_reason"]


def _row(row: Row) -> TranscriptRow:
    return TranscriptRow(
        row["n"],
        row["role"],
        row["text"],
        orjson.loads(row["data"]),
        row["turn_id"],
        row["inbound_id"],
        bool(row["active"]),
        moment(row["created_at"]),
    )


def _hit(hit: Hit) -> SearchHit:
    about = (hit.session_id, hit.session_key, hit.title, moment(hit.updated_at))
    return SearchHit(*about, hit.n, hit.role, moment(hit.said_at), hit.snippet, hit.rows)

"""Reads a hermes home: `state.db`, `sessions/sessions.json` and `sessions/<id>.jsonl`. It is only read, never changed.

The index says which conversation a key talks to: the table `gateway_routing` where there is one, else sessions.json. What
was said is in the database, in the JSON lines, or in both: the longer one is taken, whole, and of two equal ones the
database, so nothing is added up. A session that has left the index comes along where its chat is known: by the columns
of newer databases, or because one that is known followed from it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from shared.codec import storable
from shared.errors import Malformed
from shared.messages import CHAT_TYPES, Source
from shared.moving.conversation import Conversation, Row, Skipped, once_current
from shared.moving.old_keys import Sharing, read_key
from shared.moving.rows import object_of, objects, row_of, time_of
from shared.value import value

GATEWAY = "hermes"
PLATFORMS = frozenset(
    [
        "local",
        "telegram",
        "discord",
        "whatsapp",
        "whatsapp_cloud",
        "slack",
        "signal",
        "mattermost",
        "matrix",
        "homeassistant",
        "email",
        "sms",
        "dingtalk",
        "api_server",
        "webhook",
        "msgraph_webhook",
        "feishu",
        "wecom",
        "wecom_callback",
        "weixin",
        "bluebubbles",
        "qqbot",
        "yuanbao",
        "relay",
        "irc",
        "ntfy",
        "line",
        "teams",
        "google_chat",
        "simplex",
        "raft",
        "photon",
        "buzz",
    ]
)
JSON_CONTENT = "\x00json:"  # how the database marks a content that is no plain text
TITLE_LIMIT = 100
_TEXTS = ("content", "tool_call_id", "tool_calls", "tool_name", "reasoning", "reasoning_content", "role")


@value
class Entry:
    """A line of the index, or what a row of the database knows of its chat."""

    session_id: str
    old_key: str
    source: Source | None
    created_at: int | None = None
    updated_at: int | None = None


class HermesHome:
    """The conversations of a home, those of the index first, the most recently active before others."""

    def __init__(self, path: Path, sharing: Sharing) -> None:
        home = path.parent if path.name == "sessions" and not (path / "state.db").exists() else path
        self._directory = home / "sessions" if (home / "sessions").is_dir() else home
        self._database = _Database.open(home / "state.db")
        self._sharing = sharing
        index = self._directory / "sessions.json"
        if self._database is None and not index.exists():
            raise Malformed(f"{path} is no hermes home: it has neither state.db nor sessions/sessions.json")
        self._unreadable: list[Skipped] = []
        self._refused: set[str] = set()  # sessions of entries that cannot come along: told of once
        self._entries = self._index(index)
        self._sessions = self._database.sessions() if self._database is not None else {}
        self._left = self._not_in_index()
        self.total = len(self._entries) + len(self._left) + len(self._unreadable)

    def __iter__(self) -> Iterator[Conversation | Skipped]:
        yield from self._unreadable
        yield from once_current(self._of_index())
        for session_id, known in self._left.items():
            yield self._earlier(session_id, known)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _index(self, path: Path) -> list[Entry]:
        lines: dict[str, Any] = {}
        if path.exists():
            found = object_of(path.read_bytes())
            if found is None:
                self._unreadable.append(Skipped(path.name, "the index cannot be read"))
            lines = {key: value for key, value in (found or {}).items() if not key.startswith("_")}
        if self._database is not None:
            lines |= self._database.routing()  # where it is kept, the file is only its mirror
        entries = []
        for old_key, fields in lines.items():
            try:
                entries.append(_entry(old_key, fields))
            except Malformed as error:
                self._unreadable.append(Skipped(old_key, str(error)))
                self._refused.add(str(fields.get("session_id")) if isinstance(fields, dict) else "")
        return sorted(entries, key=lambda entry: entry.updated_at or 0, reverse=True)

    def _not_in_index(self) -> dict[str, Entry | None]:
        """The other sessions of the database, each with what is known of its chat."""
        known = {entry.session_id: entry for entry in self._entries}
        left: dict[str, Entry | None] = {id: _of_columns(row) for id, row in self._sessions.items() if id not in known}
        for id in (*known, *left):  # what a known conversation followed from was said in the same chat
            child, seen = known.get(id) or left.get(id), {id}
            parent = _text(self._sessions.get(id, {}).get("parent_session_id"))
            while child is not None and parent and parent not in seen and parent in left:
                seen.add(parent)
                left[parent] = left[parent] or replace(child, session_id=parent)
                child = left[parent]
                parent = _text(self._sessions.get(parent, {}).get("parent_session_id"))
        return {id: entry for id, entry in left.items() if entry is not None or id not in self._refused}

    def _of_index(self) -> Iterator[Conversation | Skipped]:
        for entry in self._entries:
            yield self._conversation(entry, is_current=True)

    def _earlier(self, session_id: str, known: Entry | None) -> Conversation | Skipped:
        if known is None:
            source = _text(self._sessions[session_id].get("source")) or "unknown source"
            return Skipped(session_id, f"nothing says in which chat it was held ({source})")
        return self._conversation(known, is_current=False)

    def _conversation(self, entry: Entry, *, is_current: bool) -> Conversation | Skipped:
        session = self._sessions.get(entry.session_id, {})
        try:
            key, source, note = read_key(entry.old_key, entry.source, self._sharing)
        except Malformed as error:
            return Skipped(entry.session_id, str(error))
        started = time_of(session.get("started_at")) or entry.created_at or entry.updated_at or 1
        rows, corrupt = self._transcript(entry.session_id, started)
        if not rows:
            return Skipped(entry.session_id, "nothing in it can be read" if corrupt else "it is empty", corrupt)
        parent = _text(session.get("parent_session_id"))
        ended = None if is_current else time_of(session.get("ended_at"))
        title = _text(session.get("title"))
        return Conversation(
            GATEWAY,
            entry.session_id,
            key,
            source,
            rows,
            created_at=started,
            updated_at=entry.updated_at if is_current and entry.updated_at else max(started, rows[-1].at),
            is_current=is_current,
            title=title[:TITLE_LIMIT] if title else None,
            parent=parent if parent in self._sessions else None,
            ended_at=ended,
            end_reason=_text(session.get("end_reason")) if ended else None,
            corrupt=corrupt,
            note=note,
        )

    def _transcript(self, session_id: str, started: int) -> tuple[tuple[Row, ...], int]:
        """The longer of the two stores, and how much of them could not be read."""
        stored, damaged = self._database.messages(session_id, started) if self._database is not None else ((), 0)
        written, corrupt = self._lines(session_id, started)
        shown = sum(row.active for row in stored)
        return (written if len(written) > shown else stored), corrupt + damaged

    def _lines(self, session_id: str, started: int) -> tuple[tuple[Row, ...], int]:
        path = self._directory / f"{session_id}.jsonl"
        if "/" in session_id or "\\" in session_id or not path.is_file():
            return (), 0
        rows, corrupt, at = [], 0, started
        for fields in objects(path):
            if fields is not None and fields.get("role") == "session_meta":
                continue  # tools and model of that time
            row = row_of(fields, otherwise_at=at) if fields is not None else None
            if row is None:
                corrupt += 1
                continue
            rows.append(row)
            at = row.at
        return tuple(rows), corrupt


class _Database:
    """state.db, of whatever version: columns that are not there are not asked for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        self._columns = {
            table: {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in ("sessions", "messages", "gateway_routing")
        }

    @classmethod
    def open(cls, path: Path) -> _Database | None:
        """None where there is none. A file that is no database is Malformed: half a home must not look like a whole one."""
        if not path.is_file():
            return None
        uri = path.resolve().as_uri()
        try:
            return cls(sqlite3.connect(f"{uri}?mode=ro", uri=True))
        except sqlite3.OperationalError:  # a directory that may not be written to, and a log that was not put away
            try:
                return cls(sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True))
            except sqlite3.DatabaseError as error:
                raise Malformed(f"{path.name} cannot be read: {error}") from None
        except sqlite3.DatabaseError as error:
            raise Malformed(f"{path.name} cannot be read: {error}") from None

    def close(self) -> None:
        self._connection.close()

    def routing(self) -> dict[str, Any]:
        if not {"session_key", "entry_json"} <= self._columns["gateway_routing"]:
            return {}
        rows = self._connection.execute("SELECT session_key, entry_json FROM gateway_routing")
        return {row["session_key"]: object_of(row["entry_json"]) for row in rows}

    def sessions(self) -> dict[str, Mapping[str, Any]]:
        wanted = [
            "id",
            "source",
            "started_at",
            "ended_at",
            "end_reason",
            "parent_session_id",
            "title",
            "session_key",
            "chat_id",
            "chat_type",
            "thread_id",
            "user_id",
            "origin_json",
        ]
        columns = [name for name in wanted if name in self._columns["sessions"]]
        if "id" not in columns:
            return {}
        rows = self._connection.execute(f"SELECT {', '.join(columns)} FROM sessions ORDER BY rowid DESC")
        return {str(row["id"]): dict(row) for row in rows}

    def messages(self, session_id: str, started: int) -> tuple[tuple[Row, ...], int]:
        """The rows of a session up to the first that the database cannot give, and 1 if there was one."""
        columns = [name for name in (*_TEXTS, "timestamp", "active") if name in self._columns["messages"]]
        if not {"role", "content"} <= set(columns):
            return (), 0
        query = f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id"
        rows: list[Row] = []
        at = started
        try:
            with closing(self._connection.execute(query, (session_id,))) as found:
                for line in found:
                    fields = {**dict(line), "content": _decoded(line["content"])}
                    row = row_of(fields, otherwise_at=at, active=fields.get("active", 1) != 0)
                    if row is not None:
                        rows.append(row)
                        at = row.at
        except sqlite3.DatabaseError:
            return tuple(rows), 1
        return tuple(rows), 0


def _entry(old_key: str, fields: Any) -> Entry:
    if not isinstance(fields, dict):
        raise Malformed("the entry cannot be read")
    session_id = _text(fields.get("session_id"))
    if session_id is None:
        raise Malformed("the entry names no session")
    origin = fields.get("origin")
    source = _source(origin) if isinstance(origin, dict) else None
    if source is None and (platform := (*old_key.split(":"), "", "")[2]) not in PLATFORMS:
        raise Malformed(f"unknown platform {platform[:40]!r}")
    created, updated = time_of(fields.get("created_at")), time_of(fields.get("updated_at"))
    return Entry(session_id, old_key, source, created, updated)


def _source(origin: Mapping[str, Any]) -> Source:
    """The origin of an entry. What an older version left out has its default; ids may have been kept as numbers."""
    platform = str(origin.get("platform", "")).lower()
    if platform not in PLATFORMS:
        raise Malformed(f"unknown platform {platform[:40]!r}")
    chat_type = origin.get("chat_type") or "dm"
    scope = origin["scope_id"] if origin.get("scope_id") is not None else origin.get("guild_id")
    return Source(
        platform=platform,
        chat=_id(origin.get("chat_id")) or "",
        chat_type=chat_type if chat_type in CHAT_TYPES else "other",
        user=_id(origin.get("user_id")),
        user_alt=_id(origin.get("user_id_alt")),
        thread=_id(origin.get("thread_id")),
        scope=_id(scope) if platform == "slack" else None,  # where Keyturn's own receivers put one in the key
        chat_name=_text(origin.get("chat_name")),
        user_name=_text(origin.get("user_name")),
        topic=(_text(origin.get("chat_topic")) or "").strip() or None,
    )


def _of_columns(row: Mapping[str, Any]) -> Entry | None:
    """What a newer database says of a session's chat; None where it says nothing."""
    old_key, origin = _text(row.get("session_key")), object_of(row.get("origin_json"))
    if origin is None and _text(row.get("chat_id")):
        columns = ("chat_id", "chat_type", "thread_id", "user_id")
        origin = {"platform": row.get("source"), **{name: row.get(name) for name in columns}}
    try:
        source = _source(origin) if origin is not None else None
    except Malformed:
        return None
    return Entry(str(row["id"]), old_key or "", source) if source is not None or old_key else None


def _decoded(content: Any) -> Any:
    if isinstance(content, str) and content.startswith(JSON_CONTENT):
        try:
            return json.loads(content.removeprefix(JSON_CONTENT))
        except (ValueError, RecursionError):
            return content.removeprefix(JSON_CONTENT)
    return content


def _id(value: Any) -> str | None:
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) and str(value) else None


def _text(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) and value else None

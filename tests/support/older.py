"""Made-up homes of the older gateways, written as they write them."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

AT = 1_767_225_600.0  # when the first thing was said, in seconds since 1970
STAMP = "2026-01-01T00:00:00+00:00"
Message = Mapping[str, Any]

SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, parent_session_id TEXT,
    started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0, title TEXT{more});
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT, active INTEGER DEFAULT 1);
"""
NEWER = ", session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT, origin_json TEXT"


def said(*texts: str) -> list[dict[str, Any]]:
    """A user and an assistant, in turns."""
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]


def origin(chat: int | str, platform: str = "telegram", **fields: Any) -> dict[str, Any]:
    base = {"platform": platform, "chat_id": chat, "chat_name": None, "chat_type": "dm", "user_id": "11"}
    return {**base, "user_name": "Ann", "thread_id": None, "chat_topic": None, **fields}


class Hermes:
    """A hermes home. Call `write_index` when all sessions are in it."""

    def __init__(self, home: Path, *, newer: bool = False, database: bool = True) -> None:
        self.home = home
        self.sessions = home / "sessions"
        self.sessions.mkdir(parents=True)
        self.index: dict[str, Any] = {"_comment": "written by the gateway"}
        self.database: sqlite3.Connection | None = None
        if database:
            self.database = sqlite3.connect(home / "state.db")
            self.database.executescript(SCHEMA.format(more=NEWER if newer else ""))

    def entry(self, old_key: str, session_id: str, source: Mapping[str, Any] | None, **fields: Any) -> None:
        times = {"created_at": STAMP, "updated_at": STAMP}
        about = {"session_key": old_key, "session_id": session_id, "origin": source, "platform": "telegram"}
        self.index[old_key] = {**about, **times, **fields}

    def session(self, session_id: str, messages: Sequence[Message] = (), **columns: Any) -> None:
        """A session in the database, with what was said in it."""
        assert self.database is not None
        row = {"id": session_id, "source": "telegram", "started_at": AT, **columns}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", list(row.values()))
        for n, message in enumerate(messages):
            row = {"session_id": session_id, "timestamp": AT + n, **message}
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            self.database.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", list(row.values()))

    def lines(self, session_id: str, messages: Iterable[Message | str]) -> None:
        """A session's file, after the record that opens it. A text is a line as it is."""
        opening = {"role": "session_meta", "tools": [], "model": "m", "platform": "telegram", "timestamp": STAMP}
        written = [line if isinstance(line, str) else json.dumps({"timestamp": STAMP, **line}) for line in messages]
        (self.sessions / f"{session_id}.jsonl").write_text("\n".join([json.dumps(opening), *written]) + "\n")

    def talk(self, chat: int, session_id: str, *texts: str, **columns: Any) -> str:
        """A direct chat in the index and in the database; our key of it."""
        self.entry(f"agent:main:telegram:dm:{chat}", session_id, origin(chat, user_id=str(chat)))
        self.session(session_id, said(*texts), user_id=str(chat), **columns)
        return f"agent:main:telegram:dm:{chat}"

    def write_index(self) -> Path:
        (self.sessions / "sessions.json").write_text(json.dumps(self.index))
        if self.database is not None:
            self.database.commit()
        return self.home


class Nanobot:
    """A nanobot workspace."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.sessions = workspace / "sessions"
        self.sessions.mkdir(parents=True)

    def path(self, key: str) -> Path:
        return self.sessions / f"{base64.urlsafe_b64encode(key.encode()).decode().rstrip('=')}.jsonl"

    def session(self, key: str, messages: Iterable[Message | str], **about: Any) -> Path:
        """A session's file. A text is a line as it is."""
        first: dict[str, Any] = {
            "_type": "metadata",
            "key": key,
            "created_at": STAMP,
            "updated_at": STAMP,
            "metadata": {},
        }
        first |= {"last_consolidated": 0, **about}
        return self.lines(key, first, *({"timestamp": STAMP, **m} if not isinstance(m, str) else m for m in messages))

    def lines(self, key: str, *lines: Message | str) -> Path:
        path = self.path(key)
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

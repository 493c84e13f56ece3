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
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT,
    parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, title TEXT,
    api_call_count INTEGER DEFAULT 0{more});
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT, reasoning_details TEXT,
    active INTEGER DEFAULT 1);
"""
NEWER = ", session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT, origin_json TEXT, expiry_finalized INTEGER"
MODELS = """
CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER, input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, first_seen REAL);
"""
CALLS = """
CREATE TABLE llm_calls (id INTEGER PRIMARY KEY, started_at_ms INTEGER NOT NULL, model TEXT NOT NULL, input_tokens INTEGER,
    output_tokens INTEGER, total_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER);
"""
WORKSPACE_ID = "0123456789abcdef0123456789abcdef"


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
            self.database.executescript(SCHEMA.format(more=NEWER if newer else "") + (MODELS if newer else ""))

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

    def spent(self, session_id: str, model: str, **columns: Any) -> None:
        """What a model has cost in a session, as newer versions keep it."""
        assert self.database is not None
        row = {"session_id": session_id, "model": model, "first_seen": AT, **columns}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO session_model_usage ({names}) VALUES ({marks})", list(row.values()))

    def remember(self, name: str, *entries: str) -> None:
        """A memory file."""
        (self.home / "memories").mkdir(exist_ok=True)
        (self.home / "memories" / name).write_text("\n§\n".join(entries))

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
    """A nanobot workspace. With `data`, as versions from 0.3 on keep it: its sessions lie in that directory."""

    def __init__(self, workspace: Path, *, data: Path | None = None) -> None:
        self.workspace = workspace
        self.sessions = data / "sessions" / WORKSPACE_ID if data is not None else workspace / "sessions"
        self.sessions.mkdir(parents=True)
        if data is not None:
            (workspace / ".nanobot").mkdir(parents=True)
            (workspace / ".nanobot/workspace-id").write_text(f"{WORKSPACE_ID}\n")
            (self.sessions / ".workspace").write_text(f"{workspace}\n")

    def remember(self, name: str, text: str) -> None:
        """A memory file."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def called(self, *calls: tuple[str, float, int, int]) -> None:
        """What models were asked: model, seconds since 1970, tokens in and out."""
        with sqlite3.connect(self.sessions.parent.parent / "llm_usage.sqlite3") as database:
            database.executescript(CALLS)
            for model, at, read, written in calls:
                database.execute(
                    "INSERT INTO llm_calls (started_at_ms, model, input_tokens, output_tokens, total_tokens)"
                    " VALUES (?, ?, ?, ?, ?)",
                    [int(at * 1000), model, read, written, read + written],
                )
        database.close()

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

"""state.db of a hermes home, of whatever version: columns that are not there are not asked for. It is only read."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from keyturn.importing.conversation import TimedRow
from keyturn.importing.rows import object_of, row_of
from shared.errors import Malformed

JSON_CONTENT = "\x00json:"  # how the database marks a content that is no plain text
_SESSION = (
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
    "expiry_finalized",
    "model_config",
)
_SPENT = (
    "model",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
)
_MESSAGE = (
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "role",
    "timestamp",
    "active",
)
_TABLES = ("sessions", "messages", "gateway_routing", "session_model_usage")


class HermesDatabase:
    """Reads Hermes' database, of any version: columns that it does not have are read as absent. Nothing is written to it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        self._columns = {
            table: {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")} for table in _TABLES
        }

    @classmethod
    def open(cls, path: Path) -> HermesDatabase | None:
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
        """What the gateway kept for each session key; a value that cannot be read is None."""
        if not {"session_key", "entry_json"} <= self._columns["gateway_routing"]:
            return {}
        rows = self._connection.execute("SELECT session_key, entry_json FROM gateway_routing")
        return {row["session_key"]: object_of(row["entry_json"]) for row in rows}

    def sessions(self) -> dict[str, Mapping[str, Any]]:
        """The sessions, newest first, each with what it has cost in sum."""
        columns = self._known("sessions", (*_SESSION, *_SPENT))
        if "id" not in columns:
            return {}
        rows = self._connection.execute(f"SELECT {', '.join(columns)} FROM sessions ORDER BY rowid DESC")
        return {str(row["id"]): dict(row) for row in rows}

    def spent_by_model(self) -> Mapping[str, list[Mapping[str, Any]]]:
        """What each session has cost, model by model, where that is kept."""
        found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        columns = self._known("session_model_usage", ("session_id", "first_seen", *_SPENT))
        if {"session_id", "model"} <= set(columns):
            query = f"SELECT {', '.join(columns)} FROM session_model_usage ORDER BY session_id, model, rowid"
            for row in self._connection.execute(query):
                found[str(row["session_id"])].append(dict(row))
        return found

    def messages(self, session_id: str, started: int) -> tuple[tuple[TimedRow, ...], int]:
        """The rows of a session up to the first that the database cannot give, and 1 if there was one."""
        columns = self._known("messages", _MESSAGE)
        if not {"role", "content"} <= set(columns):
            return (), 0
        query = f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id"
        rows: list[TimedRow] = []
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

    def _known(self, table: str, wanted: tuple[str, ...]) -> list[str]:
        return [name for name in wanted if name in self._columns[table]]


def _decoded(content: Any) -> Any:
    if isinstance(content, str) and content.startswith(JSON_CONTENT):
        try:
            return json.loads(content.removeprefix(JSON_CONTENT))
        except (ValueError, RecursionError):
            return content.removeprefix(JSON_CONTENT)
    return content

"""Reads a hermes home: `state.db`, `sessions/sessions.json`, `sessions/<id>.jsonl` and the memory files. It changes nothing.

The index says which conversation a key talks to: the table `gateway_routing` where there is one, else sessions.json. What
was said is in the database, in the JSON lines, or in both: the longer one is taken, whole, and of two equal ones the
database, so nothing is added up. A session that has left the index comes along where its chat is known:
`places.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keyturn.importing.conversation import OldConversation, Skipped, TimedRow, Used, once_current
from keyturn.importing.hermes.database import HermesDatabase
from keyturn.importing.hermes.entries import HermesEntry, entry_of, text_of
from keyturn.importing.hermes.places import places
from keyturn.importing.hermes.usage import used_by
from keyturn.importing.memory_files import entries_of
from keyturn.importing.old_keys import read_key
from keyturn.importing.rows import is_signed, object_of, objects, row_of, time_of, with_sender
from keyturn.importing.titles import title_of
from shared.context.shared_thread import is_shared
from shared.errors import Malformed
from shared.routing import Sharing

PERHAPS_SHARED = "several people may have shared it, and nothing says in which chat"


class HermesHome:
    """The conversations of a home, those of the index first, the most recently active before others."""

    gateway = "hermes"

    def __init__(self, path: Path, sharing: Sharing, user: str = "me") -> None:
        """`user` is who sits at this machine's terminal."""
        home = path.parent if path.name == "sessions" and not (path / "state.db").exists() else path
        self._home = home
        self._directory = home / "sessions" if (home / "sessions").is_dir() else home
        self._database = HermesDatabase.open(home / "state.db")
        self._sharing, self._user = sharing, user
        index = self._directory / "sessions.json"
        if self._database is None and not index.exists():
            raise Malformed(f"{path} is no hermes home: it has neither state.db nor sessions/sessions.json")
        self._unreadable: list[Skipped] = []
        self._refused: set[str] = set()  # sessions of entries that cannot come along: told of once
        self._entries = self._index(index)
        self._sessions = self._database.sessions() if self._database is not None else {}
        self._spent = self._database.spent_by_model() if self._database is not None else {}
        self._aliases = _aliases(home)
        self._left = self._not_in_index()
        self._unreadable += self._files_of_nobody()
        self.total = len(self._entries) + len(self._left) + len(self._unreadable)

    def __iter__(self) -> Iterator[OldConversation | Skipped]:
        yield from self._unreadable
        yield from once_current(self._conversation(entry) for entry in self._entries)
        for session_id, place in self._left.items():
            yield Skipped(session_id, place) if isinstance(place, str) else self._conversation(place)

    def used(self) -> Sequence[Used]:
        return ()

    def memory(self) -> Sequence[str]:
        return tuple(note for name in ("USER.md", "MEMORY.md") for note in entries_of(self._home / "memories" / name))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _index(self, path: Path) -> list[HermesEntry]:
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
                entries.append(entry_of(old_key, fields))
            except Malformed as error:
                self._unreadable.append(Skipped(old_key, str(error)))
                self._refused.add(str(fields.get("session_id")) if isinstance(fields, dict) else "")
        by_session: dict[str, HermesEntry] = {}
        for entry in sorted(entries, key=lambda entry: entry.updated_at or 0, reverse=True):
            if by_session.setdefault(entry.session_id, entry) is not entry:
                other = by_session[entry.session_id].old_key
                self._unreadable.append(
                    Skipped(entry.old_key, f"it talks to the session of {other[:80]}, which has it")
                )
        return list(by_session.values())

    def _not_in_index(self) -> dict[str, HermesEntry | str]:
        """The other sessions of the database, each with its place or the reason why it has none."""
        found = places(self._entries, self._sessions)
        return {id: place for id, place in found.items() if not isinstance(place, str) or id not in self._refused}

    def _files_of_nobody(self) -> Iterator[Skipped]:
        known = {entry.session_id for entry in self._entries} | self._sessions.keys() | self._refused
        for path in sorted(self._directory.glob("*.jsonl")):
            if path.stem not in known:
                yield Skipped(path.name, "nothing says in which chat it was held (a file that no index names)")

    def _conversation(self, entry: HermesEntry) -> OldConversation | Skipped:
        session = self._sessions.get(entry.session_id, {})
        try:
            place = read_key(entry.old_key, entry.source, self._sharing, self._aliases, self._user)
        except Malformed as error:
            return Skipped(entry.session_id, str(error))
        started = time_of(session.get("started_at")) or entry.created_at or entry.updated_at or 1
        rows, corrupt = self._transcript(entry.session_id, started)
        if not rows:
            return Skipped(entry.session_id, "nothing in it can be read" if corrupt else "it is empty", corrupt)
        if entry.by_user and any(map(is_signed, rows)):
            return Skipped(entry.session_id, PERHAPS_SHARED, corrupt)
        parent, last_at = text_of(session.get("parent_session_id")), max(started, rows[-1].at)
        return OldConversation(
            self.gateway,
            entry.session_id,
            place,
            tuple(map(with_sender, rows)) if is_shared(place.key) else rows,
            created_at=started,
            updated_at=entry.updated_at or last_at,
            is_current=entry.is_current,
            title=title_of(session.get("title")),
            parent=parent if parent in self._sessions else None,
            ended_at=None if entry.is_current else time_of(session.get("ended_at")) or last_at,
            end_reason=None if entry.is_current else text_of(session.get("end_reason")),
            used=used_by(session, self._spent.get(entry.session_id, ()), entry.fields, started),
            is_flushed=_is_flushed(session) or _is_flushed(entry.fields),
            corrupt=corrupt,
        )

    def _transcript(self, session_id: str, started: int) -> tuple[tuple[TimedRow, ...], int]:
        """The longer of the two stores, and how much of them could not be read."""
        stored, damaged = self._database.messages(session_id, started) if self._database is not None else ((), 0)
        written, corrupt = self._lines(session_id, started)
        shown = sum(row.active for row in stored)
        return (written if len(written) > shown else stored), corrupt + damaged

    def _lines(self, session_id: str, started: int) -> tuple[tuple[TimedRow, ...], int]:
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


def _is_flushed(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("expiry_finalized") or fields.get("memory_flushed"))


def _aliases(home: Path) -> dict[str, str]:
    """The other number of each person that WhatsApp's bridge wrote down."""
    found: dict[str, str] = {}
    for path in sorted((home / "whatsapp" / "session").glob("lid-mapping-*.json")):
        try:
            other = json.loads(path.read_bytes())
        except ValueError:
            continue
        if isinstance(other, str):
            found[path.stem.removeprefix("lid-mapping-").removesuffix("_reverse")] = other
    return found

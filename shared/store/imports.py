"""What an import of an older gateway writes. Tables: sessions, messages, routes, turns, facts, flushes, notes, usage.

keyturn/importing puts these statements together. An import signs a session with a turn id that follows from what it brings,
and the other statements of its transaction write only where that signature stands: so an import may be stopped anywhere and
run again, and two imports at once bring the same thing once.
"""

from __future__ import annotations

from typing import Protocol, TypedDict, Unpack

from shared.store.database.statements import Step, declared
from shared.store.usage import Counted


class SignedImport(TypedDict):
    """The session, and the turn id with which an import signs it."""

    session_id: str
    turn_id: str


class ImportedSession(SignedImport):
    """A row of table sessions; `added` is how many rows its transcript has."""

    session_key: str
    added: int
    created_at: int
    updated_at: int
    title: str | None
    parent_id: str | None
    ended_at: int | None
    end_reason: str | None
    owner: str | None


class ImportedMessage(SignedImport):
    """A row of table messages."""

    n: int
    role: str
    text: str
    data: str
    active: int
    created_at: int


class ImportedUsageApart(Counted):
    """What was spent beside all turns: a row of table usage."""

    session_id: str
    now: int


class ImportedUsage(ImportedUsageApart):
    """What was spent in a conversation, signed by its import."""

    turn_id: str


class ImportsSql(Protocol):
    """The statements of imports.sql, with the values that each needs."""

    def import_standing(self, *, session_id: str) -> Step: ...
    def import_session(self, **row: Unpack[ImportedSession]) -> Step: ...
    def import_growth(
        self, *, session_id: str, turn_id: str, version: int, added: int, title: str | None, updated_at: int
    ) -> Step: ...
    def import_message(self, **row: Unpack[ImportedMessage]) -> Step: ...
    def import_inactive(self, *, session_id: str, turn_id: str, from_n: int, to_n: int) -> Step: ...
    def import_route(self, *, session_id: str, turn_id: str, session_key: str, created_at: int) -> Step: ...
    def import_turn(self, *, session_id: str, turn_id: str, now: int) -> Step: ...
    def import_fact(self, *, session_id: str, turn_id: str, fact: str, value: str) -> Step: ...
    def import_flushed(self, *, session_id: str, turn_id: str, upto: int) -> Step: ...
    def import_usage(self, **row: Unpack[ImportedUsage]) -> Step: ...
    def import_usage_apart(self, **row: Unpack[ImportedUsageApart]) -> Step: ...
    def import_note_once(self, *, scope: str, name: str, token: str) -> Step: ...
    def import_note(self, *, scope: str, name: str, token: str, owner: str, text: str, now: int) -> Step: ...


sql = declared(ImportsSql)

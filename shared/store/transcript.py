"""Sessions and their transcripts, to be read. Turns write them: shared/store/commits.py."""

from __future__ import annotations

from typing import Protocol, TypedDict, Unpack

import orjson

from shared.context.marks import media_of
from shared.context.memory import SHOWN
from shared.messages import Entry, Media, PromptFacts, Session
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.facts import HOMES
from shared.store.journal import first_session_id
from shared.store.windows import Windows
from shared.value import value
from shared.window import Window, read_entry

LATEST = 2**62  # a row number beyond all others
ROWS_AT_ONCE = 2000  # that are read to be summarised


@value
class Standing:
    """What the database knows of an inbound: whether it has ended, how many attempts failed, since when its provider is
    away, and whether an attempt has called tools or begun to show its answer."""

    state: str | None  # None: the journal does not have it
    attempts: int = 0
    outage_ms: int | None = None
    has_run: bool = False
    has_draft: bool = False


@value
class LastSaid:
    """The last row that a user said, and how many rows there are from it on."""

    n: int
    text: str
    media: tuple[Media, ...]
    rows_from_here: int


class Wanted(TypedDict):
    """What is read for a turn: the session of a key, the inbound `id`, and what its model is told besides."""

    session_key: str
    id: str
    limit: int  # rows of the transcript
    left_by: str  # the turn whose end of the transcript is known
    notes_of: str | None
    notes_limit: int
    homes: str | None


class TranscriptSql(Protocol):
    """The statements of transcript.sql, with the values that each needs."""

    def load(self, **wanted: Unpack[Wanted]) -> Step: ...
    def load_bare(self, *, session_key: str) -> Step: ...
    def load_window(self, *, session_key: str, limit: int, before: int) -> Step: ...
    def last_user_row(self, *, session_id: str) -> Step: ...
    def first_user_rows(self, *, session_id: str, limit: int) -> Step: ...
    def rows_to_compress(self, *, session_id: str, after: int, until: int, limit: int) -> Step: ...


sql = declared(TranscriptSql)


class Transcript:
    """Reads sessions with the ends of their transcripts. Writing goes through commits only."""

    def __init__(self, database: Database, history_messages: int, windows: Windows) -> None:
        self._database = database
        self._window = history_messages
        self._windows = windows

    async def load(
        self, session_key: str, inbound_id: str, notes_of: str | None = None
    ) -> tuple[Session, Standing | None]:
        """The session of a key with the end of its transcript, and how an inbound stands. Costs the window, not the history.

        `notes_of` is for a turn whose model is told more: whose notes are read as well, together with the home channels.
        """
        left = self._windows.of(session_key)
        query = sql.load(
            session_key=session_key,
            id=inbound_id,
            limit=self._window,
            left_by=left.turn_id,
            notes_of=notes_of or None,
            notes_limit=SHOWN,
            homes=HOMES if notes_of is not None else None,
        )
        [[row]] = await self._database.read(query)
        told = None
        if notes_of is not None:
            notes = tuple(reversed(orjson.loads(row["notes"] or "[]")))
            told = PromptFacts(notes_of, notes, orjson.loads(row["homes"] or "{}"))
        stands = None
        if row["state"] is not None or row["has_run"]:
            has_run, has_draft = bool(row["has_run"]), bool(row["has_draft"])
            stands = Standing(row["state"], row["attempts"] or 0, row["outage_ms"], has_run, has_draft)
        if row["session_id"] is None:
            window = Window(None, self._window)
            return Session(first_session_id(session_key), 0, 0, 0, window, prompt_facts=told), stands
        session = Session(
            row["session_id"],
            row["version"] or 0,
            row["message_count"] or 0,
            row["done_seq"],
            left.window if row["turn_id"] == left.turn_id else Window(row["rows"], self._window),
            row["updated_at"] or 0,
            orjson.loads(row["facts"] or "{}"),
            row["owner"],
            prompt_facts=told,
        )
        return session, stands

    async def bare(self, session_key: str) -> Session:
        """The session of a key without its transcript and facts: enough to end mail in it, by the same compare-and-set."""
        [rows] = await self._database.read(sql.load_bare(session_key=session_key))
        if not rows:
            return Session(first_session_id(session_key), 0, 0, 0, Window(None, self._window), is_loaded=False)
        row = rows[0]
        return Session(
            row["session_id"],
            row["version"],
            row["message_count"],
            row["done_seq"],
            Window(None, self._window),
            row["updated_at"],
            owner=row["owner"],
            is_loaded=False,
        )

    async def last_said(self, session_id: str) -> LastSaid | None:
        """The last thing that the user said, commands aside. None: nothing yet."""
        [rows] = await self._database.read(sql.last_user_row(session_id=session_id))
        if not rows:
            return None
        row = rows[0]
        media = media_of(read_entry("user", row["text"], row["data"], None))
        return LastSaid(row["n"], row["text"], media, row["rows_from_here"])

    async def first_said(self, session_id: str, limit: int) -> list[tuple[int, str]]:
        """The first things that the user said, commands aside: the number of each row, and its text."""
        [rows] = await self._database.read(sql.first_user_rows(session_id=session_id, limit=limit))
        return [(row["n"], row["text"]) for row in rows]

    async def window(self, session_key: str, before: int) -> Window:
        """The end of the transcript as it stood before a given row."""
        query = sql.load_window(session_key=session_key, limit=self._window, before=before)
        [rows] = await self._database.read(query)
        return Window(rows[0]["rows"], self._window)

    async def after(self, session_id: str, after: int, until: int) -> tuple[list[tuple[int, Entry]], bool]:
        """The numbered rows of a conversation in a range, oldest first; and whether there are more than were read."""
        query = sql.rows_to_compress(session_id=session_id, after=after, until=until, limit=ROWS_AT_ONCE + 1)
        [rows] = await self._database.read(query)
        numbered = [(row.pop("n"), read_entry(**row)) for row in rows[:ROWS_AT_ONCE]]
        return numbered, len(rows) > ROWS_AT_ONCE

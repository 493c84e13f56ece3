"""Search in what was said: an index beside the transcript, and the words of those who may ask.

No commit waits for the index. The housekeeper brings it up to date session by session: `sessions.searched` says how far,
and moves in the transaction that adds the rows, so each is added once, whoever crashes and however many housekeepers run.
What is not indexed yet is searched as it is. A row that was undone or deleted since is not found: the transcript decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from shared.errors import AlreadyDone
from shared.store.candidates import candidates
from shared.store.database import Database, Row, Step, step
from shared.store.grams import folded, grams_for, grams_of, owner_gram
from shared.value import value

SESSIONS_AT_ONCE = 32  # that one look indexes
SESSIONS_PER_COMMIT = 8  # SQLite: turns wait for its one writer meanwhile
WRITES_AT_ONCE = 4  # PostgreSQL: the pool is the turns' first
ROWS_AT_ONCE = 200  # of one session: nobody waits long for SQLite's one writer
TAIL = 2000  # rows not indexed yet that one search reads
TERMS = 8
BEFORE, AFTER = 40, 100  # characters of a snippet
_TERM = re.compile(r"[\"“”„]([^\"“”„]*)[\"“”„]|(\S+)")


@value
class Hit:
    """A session where the words were found: its newest such row, and how many were seen."""

    session_id: str
    session_key: str
    title: str | None
    updated_at: int
    n: int
    role: str
    said_at: int
    snippet: str
    rows: int = 1


@value
class Found:
    hits: tuple[Hit, ...]
    complete: bool = True  # False: older rows are not indexed yet, or the words are too common to look at all


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE if database.dialect == "postgres" else SESSIONS_PER_COMMIT)

    async def find(
        self, words: str, owner: str | None, limit: int = 10, only: Callable[[str], bool] = lambda _: True
    ) -> Found | None:
        """The sessions of `owner` that say all the words, newest first; None where there is nothing to look for.

        `only` chooses by session key. Without an owner, everybody's sessions: for an operator.
        """
        terms = [term for a, b in _TERM.findall(words) if (term := folded(a or b))][:TERMS]
        grams = set[str]().union(*map(grams_for, terms))
        if not grams:
            return None
        rows, complete = await self._tail(owner)
        sessions: dict[str, Hit] = {}
        self._sift(sessions, sorted(rows, key=lambda row: -row["created_at"]), terms, only)
        async for page in candidates(self._database, grams, owner):
            self._sift(sessions, page.rows, terms, only)
            if len(sessions) >= limit:
                break
            complete &= page.complete
        hits = sorted(sessions.values(), key=lambda hit: -hit.said_at)
        return Found(tuple(hits[:limit]), complete)

    async def index(self) -> bool:
        """Index the next sessions that have rows which cannot be found yet; whether there are more."""
        [due] = await self._database.read(step("search_due", limit=SESSIONS_AT_ONCE))
        await asyncio.gather(*map(self._index, due))
        long = any(session["message_count"] - session["searched"] > ROWS_AT_ONCE for session in due)
        return long or len(due) == SESSIONS_AT_ONCE

    async def _index(self, session: Row) -> None:
        id, after = session["id"], session["searched"]
        upto = min(session["message_count"], after + ROWS_AT_ONCE)
        async with self._writes:
            [rows] = await self._database.read(step("search_texts", session_id=id, after=after, upto=upto))
            owner = owner_gram(session["owner"])
            grams = [" ".join((owner, *grams_of(row["text"]))) for row in rows]
            steps = self._added(session, [row["n"] for row in rows], grams) if rows else []
            with suppress(AlreadyDone):  # another housekeeper was faster
                await self._database.write(*steps, step("search_moved", session_id=id, after=after, upto=upto))

    def _added(self, session: Row, numbers: list[int], grams: list[str]) -> list[Step]:
        if self._database.dialect == "postgres":
            about = {"session_id": session["id"], "owner": session["owner"]}
            return [step("search_rows_postgres", numbers=numbers, grams=grams, **about)]
        rows = [{"session_id": session["id"], "n": n, "grams": text} for n, text in zip(numbers, grams, strict=True)]
        return [step(name, **row) for row in rows for name in ("search_row", "search_row_grams")]

    async def _tail(self, owner: str | None) -> tuple[list[Row], bool]:
        [rows] = await self._database.read(
            step("search_tail_of_all", limit=TAIL) if owner is None else step("search_tail", owner=owner, limit=TAIL)
        )
        return rows, len(rows) < TAIL

    def _sift(
        self, sessions: dict[str, Hit], rows: Sequence[Row], terms: Sequence[str], only: Callable[[str], bool]
    ) -> None:
        """Keep what really contains the terms: a session's newest row, and the count."""
        for row in rows:
            text = folded(row["text"])
            if not all(term in text for term in terms) or not only(row["session_key"]):
                continue
            id, known = row["session_id"], sessions.get(row["session_id"])
            count = known.rows + 1 if known else 1
            if known is not None and known.n >= row["n"]:
                row = {**row, "n": known.n, "role": known.role, "created_at": known.said_at}
                shown = known.snippet
            else:
                shown = snippet(row["text"], terms)
            about = (row["session_key"], row["title"], row["updated_at"], row["n"], row["role"], row["created_at"])
            sessions[id] = Hit(id, *about, shown, count)


def snippet(text: str, terms: Sequence[str]) -> str:
    """The part of a text around the first of the terms, which is marked «so»."""
    line = " ".join(text.split())
    at, length = _place(line, terms)
    start, end = max(at - BEFORE, 0), at + length + AFTER
    around = f"{line[start:at]}«{line[at : at + length]}»{line[at + length : end]}"
    return f"{'…' if start else ''}{around}{'…' if end < len(line) else ''}"


def _place(line: str, terms: Sequence[str]) -> tuple[int, int]:
    """Where a term is in the line as it was written, which folding may have made longer or shorter."""
    compared = folded(line)
    at, term = min(((found, term) for term in terms if (found := compared.find(term)) >= 0), default=(0, ""))
    if len(compared) == len(line):
        return at, len(term)
    ends, length = [0], 0
    for char in line:
        length += len(folded(char)) if not char.isspace() else 1
        ends.append(length)
    start = max(n for n, end in enumerate(ends) if end <= at)
    end = next((n for n, end in enumerate(ends) if end >= at + len(term)), len(line))
    return start, end - start

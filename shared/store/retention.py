"""Retention: removes what is older than it may be, some rows at a time. shared/store/retention.sql has the tables.

Every method does one small step and may be repeated, by several housekeepers at once. After a crash, a step happened whole
or not at all. Nothing here touches a message that waits, a part that is still to be sent, or an open dead letter that may stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from shared.clock import now_ms
from shared.codec import encode_text
from shared.store import deletion
from shared.store.database import Database, Row
from shared.store.database.statements import Step, declared
from shared.store.search import row_grams

# Of the search index, in one step. Nothing says where its old rows are, so all of it is looked through, a part in each look.
PAGES, PAGE_ROWS = 20, 500
CLOSED = ("replayed", "dropped")
HOUR_MS = 3_600_000
# After `keyturn migrate`, processes of the version before may still run for so long. They do not look into known_messages, so
# nothing is moved there meanwhile. A database whose migrations were all applied within an hour never had such processes.
OLDER_PROCESSES_MS = 7 * 24 * HOUR_MS
_TURN_IDS = ("drop_", "turn_")  # how ids of turns begin; the time follows, in 12 hexadecimal digits
_FIRST = (0, "")  # before all messages, by the time that they ended and their id


class RetentionSql(Protocol):
    """The statements of retention.sql, with the values that each needs."""

    def expired_inbox(self, *, before: int, turns_before: int, limit: int) -> Step: ...
    def empty_inbox(self, *, rows: str) -> Step: ...
    def emptied_page(self, *, after: int, after_id: str, turns_before: int, limit: int) -> Step: ...
    def may_move(self, *, known_for_ms: int, at_once_ms: int) -> Step: ...
    def know_messages(self, *, rows: str) -> Step: ...
    def leave_inbox(self, *, rows: str) -> Step: ...
    def outbox_page(self, *, after: int, limit: int) -> Step: ...
    def prune_outbox(self, *, after: int, last: int, before: int) -> Step: ...
    def expired_turns(self, *, first: str, beyond: str, before: int, limit: int) -> Step: ...
    def prune_turns(self, *, rows: str) -> Step: ...
    def old_letters_page(self, *, state: str, after: int, limit: int) -> Step: ...
    def prune_dead(self, *, state: str, after: int, last: int, before: int) -> Step: ...
    def prune_usage(self, *, day: str, limit: int) -> Step: ...
    def old_audit_page(self, *, after: int, limit: int) -> Step: ...
    def prune_audit(self, *, after: int, last: int, before: int) -> Step: ...
    def prune_blob_references(self, *, before: int, limit: int) -> Step: ...
    def superseded_rows(self, *, before: int, limit: int) -> Step: ...
    def expired_session(self, *, before: int, noted: int) -> Step: ...
    def session_rows(self, *, session_id: str, limit: int) -> Step: ...
    def delete_rows(self, *, rows: str) -> Step: ...
    def hold_ended_session(self, *, session_id: str, before: int) -> Step: ...
    def delete_ended_rows(self, *, rows: str, session_id: str, before: int) -> Step: ...
    def delete_ended_session(self, *, session_id: str, version: int, indexed: int, before: int) -> Step: ...
    def indexed_page(self, *, after: int, limit: int) -> Step: ...
    def indexed_rows(self, *, rows: str) -> Step: ...
    def unindex_grams(self, *, place: int, grams: str) -> Step: ...
    def unindex_row(self, *, place: int) -> Step: ...
    def unindex_ended_grams(self, *, place: int, grams: str, before: int) -> Step: ...
    def unindex_ended_row(self, *, place: int, before: int) -> Step: ...
    def spans_page(self, *, after: int, limit: int) -> Step: ...
    def forget_spans(self, *, places: list[int], before: int) -> Step: ...
    def shorten_spans(self, *, places: list[int], before: int) -> Step: ...
    def reopen_spans(self, *, rows: str) -> Step: ...


sql = declared(RetentionSql)


class _NumberedPage(Protocol):
    def __call__(self, *, after: int, limit: int) -> Step: ...


class _Prune(Protocol):
    def __call__(self, *, after: int, last: int, before: int) -> Step: ...


class Retention:
    """One step of each kind. A step gives how many rows it removed or emptied; 0: there is nothing more that is old."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = 0  # how far the search index was gone through
        self._numbers = defaultdict[str, int](int)  # how far outbox, dead letters and audit log were
        self._emptied = _FIRST  # how far emptied messages were
        self._may_move = False

    async def journal(self, before: int, limit: int, turns_before: int = 0) -> int:
        """Take messages that ended before a time (ms) out of the journal. Those whose turns are from before `turns_before` and of
        whose replies nothing is left become a row of known_messages. The others stay, without words, until that is so."""
        query = sql.expired_inbox(before=before, turns_before=turns_before, limit=limit)
        [rows] = await self._database.read(query)
        if not rows:
            return await self._move_emptied(turns_before, limit)
        may_move, steps = await self._all_know_the_table(), list[Step]()
        if moving := [row for row in rows if may_move and row["bare"]]:
            steps += self._moved(moving)
        if staying := [row for row in rows if not (may_move and row["bare"])]:
            steps.append(sql.empty_inbox(rows=encode_text(staying)))
        await self._database.write(*steps)
        return len(rows)

    async def _move_emptied(self, turns_before: int, limit: int) -> int:
        """Move messages that lost their words earlier. Goes on behind those to which something still refers."""
        while await self._all_know_the_table():
            after, after_id = self._emptied
            query = sql.emptied_page(after=after, after_id=after_id, turns_before=turns_before, limit=limit)
            [page] = await self._database.read(query)
            self._emptied = (page[-1]["finished_at"], page[-1]["id"]) if len(page) == limit else _FIRST
            if moving := [row for row in page if row["bare"]]:
                await self._database.write(*self._moved(moving))
            if moving or self._emptied == _FIRST:
                return len(moving)
        return 0

    def _moved(self, rows: Sequence[Row]) -> list[Step]:
        """What moves some messages from the journal to known_messages, in one transaction."""
        listed = encode_text([{"id": row["id"]} for row in rows])
        know = sql.know_messages(rows=listed)  # PostgreSQL: deletes them from the journal as well
        return [know, sql.leave_inbox(rows=listed)] if self._database.dialect == "sqlite" else [know]

    async def _all_know_the_table(self) -> bool:
        if not self._may_move:
            [yes] = await self._database.read(sql.may_move(known_for_ms=OLDER_PROCESSES_MS, at_once_ms=HOUR_MS))
            self._may_move = bool(yes)
        return self._may_move

    async def outbox(self, before: int, limit: int) -> int:
        """Delete parts that ended and were decided before a time."""
        return await self._numbered("outbox", sql.outbox_page, sql.prune_outbox, before, limit)

    async def _numbered(self, name: str, page: _NumberedPage, prune: _Prune, before: int, limit: int) -> int:
        """Delete rows from before a time, in the order of their numbers, and so of time. Goes on behind those that stay, and behind
        those whose time is in the future: a clock that was ahead wrote them, and older rows may follow."""
        while True:
            after = self._numbers[name]
            [[found]] = await self._database.read(page(after=after, limit=limit))
            if found["last"] is None:
                self._numbers[name] = 0
                return 0
            [gone] = await self._database.write(prune(after=after, last=found["last"], before=before))
            goes_on = found["oldest"] < before or found["newest"] > now_ms()
            self._numbers[name] = found["last"] if goes_on else 0
            if gone or not goes_on:
                return len(gone)

    async def turns(self, before: int, limit: int) -> int:
        """Delete the records of turns that were committed before a time."""
        for kind in _TURN_IDS:
            beyond = f"{kind}{before:012x}"
            query = sql.expired_turns(first=kind, beyond=beyond, before=before, limit=limit)
            [rows] = await self._database.read(query)
            if rows:
                await self._database.write(sql.prune_turns(rows=encode_text(rows)))
                return len(rows)
        return 0

    async def closed_letters(self, before: int, limit: int) -> int:
        """Delete dead letters from before a time that were replayed or dropped."""
        return sum([await self._letters(state, before, limit) for state in CLOSED])

    async def open_letters(self, before: int, limit: int) -> int:
        """Delete dead letters from before a time that nobody decided on."""
        return await self._letters("open", before, limit)

    async def _letters(self, state: str, before: int, limit: int) -> int:
        page, prune = partial(sql.old_letters_page, state=state), partial(sql.prune_dead, state=state)
        return await self._numbered(f"dead {state}", page, prune, before, limit)

    async def usage(self, day: str, limit: int) -> int:
        """Delete what was spent before a day."""
        [gone] = await self._database.write(sql.prune_usage(day=day, limit=limit))
        return len(gone)

    async def audit(self, before: int, limit: int) -> int:
        """Delete records of the audit log from before a time."""
        return await self._numbered("audit", sql.old_audit_page, sql.prune_audit, before, limit)

    async def blobs(self, before: int, limit: int) -> int:
        """Forget references to files from before a time; the files go when nothing refers to them."""
        [gone] = await self._database.write(sql.prune_blob_references(before=before, limit=limit))
        return len(gone)

    async def superseded(self, before: int, limit: int) -> int:
        """Delete rows from before a time that left their conversation."""
        [rows] = await self._database.read(sql.superseded_rows(before=before, limit=limit))
        await self._delete_rows(rows)
        return len(rows)

    async def sessions(self, before: int, limit: int, noted: bool = True) -> int:
        """Delete rows of the session that ended first, if that was before a time, and in the end the session itself.
        One that somebody resumes meanwhile (that does not change its version) keeps the rows that it still has.
        `noted`: those that are still to be looked through for notes stay."""
        [found] = await self._database.read(sql.expired_session(before=before, noted=int(noted)))
        if not found:
            return 0
        session = found[0]
        [rows] = await self._database.read(sql.session_rows(session_id=session["id"], limit=limit))
        await self._delete_ended(session["id"], rows, before)
        if len(rows) < limit:
            await self._database.write(*_rest_of(session, before))
        return max(len(rows), 1)

    async def search(self, before: int, limit: int) -> int:
        """Let search forget rows that were said before a time. Goes through the index, some pages in a step, then begins anew."""
        for _ in range(PAGES):
            page = await self._index_page()
            old = [row for row in page if row["created_at"] is None or row["created_at"] < before]
            if len(old) > limit:  # the rest of the page is for the next step
                old = old[:limit]
                self._place = old[-1]["place"]
            else:
                self._place = page[-1]["place"] if len(page) == PAGE_ROWS else 0
            if old:
                await self._unindex(old, before)
            if old or self._place == 0:
                return len(old)
        return 0

    async def _index_page(self) -> list[Row]:
        """The next entries of the index: rows in SQLite, spans of rows in PostgreSQL."""
        page = sql.indexed_page if self._database.dialect == "sqlite" else sql.spans_page
        [rows] = await self._database.read(page(after=self._place, limit=PAGE_ROWS))
        return rows

    async def _unindex(self, old: Sequence[Row], before: int) -> None:
        if self._database.dialect == "postgres":
            places = [row["place"] for row in old]
            await self._database.write(
                sql.forget_spans(places=places, before=before), sql.shorten_spans(places=places, before=before)
            )
            return
        await self._database.write(*await forgotten(self._database, _listed(old)))

    async def _delete_ended(self, session_id: str, rows: Sequence[Row], before: int) -> None:
        """Delete rows of a session that ended before a time, with what search finds them by, unless it goes on by now."""
        if not rows:
            return
        listed = _listed(rows)
        steps = [sql.hold_ended_session(session_id=session_id, before=before)]
        if (
            self._database.dialect == "sqlite"
        ):  # PostgreSQL: spans go with the session; rows that are gone are not found
            [indexed] = await self._database.read(sql.indexed_rows(rows=listed))
            for row in indexed:
                grams = row_grams(row["owner"], row["text"])
                steps.append(sql.unindex_ended_grams(place=row["place"], grams=grams, before=before))
                steps.append(sql.unindex_ended_row(place=row["place"], before=before))
        await self._database.write(*steps, sql.delete_ended_rows(rows=listed, session_id=session_id, before=before))

    async def _delete_rows(self, rows: Sequence[Row]) -> None:
        """Delete rows of transcripts, and what search finds them by, in one transaction."""
        if not rows:
            return
        listed = _listed(rows)
        await self._database.write(*await forgotten(self._database, listed), sql.delete_rows(rows=listed))


async def forgotten(database: Database, rows: str) -> list[Step]:
    """What lets search forget some rows of transcripts (a JSON list of session_id and n)."""
    if database.dialect == "postgres":
        return [sql.reopen_spans(rows=rows)]
    steps = list[Step]()
    [indexed] = await database.read(sql.indexed_rows(rows=rows))
    for row in indexed:
        steps.append(sql.unindex_grams(place=row["place"], grams=row_grams(row["owner"], row["text"])))
        steps.append(sql.unindex_row(place=row["place"]))
    return steps


def _listed(rows: Sequence[Row]) -> str:
    return encode_text([{"session_id": row["session_id"], "n": row["n"]} for row in rows])


def _rest_of(session: Row, before: int) -> Sequence[Step]:
    """Delete a session without rows, unless it went on meanwhile, and what belongs to it alone. Its notes stay."""
    id, version, indexed = session["id"], session["version"], session["indexed"]
    return (
        sql.delete_ended_session(session_id=id, version=version, indexed=indexed, before=before),
        deletion.sql.delete_search(session_id=id),
        deletion.sql.delete_flushes(session_id=id),
        deletion.sql.delete_facts(session_id=id),
        deletion.sql.delete_steps(session_id=id),
        deletion.sql.delete_runs(session_id=id),
        deletion.sql.delete_asks(session_id=id),
        deletion.sql.delete_blob_references(session_id=id),
    )

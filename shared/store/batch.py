"""Commits written together: tables sessions, routes, inbox, messages, turns, usage and outbox.

Commits that wait while another write is under way go into the next one (shared/together.py), as one transaction of at most
ten statements: on SQLite they share one sync, on PostgreSQL one round trip. Each statement gets the rows of all of them as
one JSON list. After a crash each commit is there whole or not at all, whoever it was written with. Where one of them cannot
be kept or meets a locked row, nothing of the batch is written, and each is then written alone.

Worked example: the turns of two conversations end at the same time. `write` is called with these rows (shortened):

    turn_a   turns     {"session_id": "ses_a", "turn_id": "turn_a", "version": 4, "mail": [{"id": "in_a"}], "waiting": 1, …}
             ended     {"session_id": "ses_a", "turn_id": "turn_a", "id": "in_a", "state": "answered", …}
             messages  {"session_id": "ses_a", "turn_id": "turn_a", "n": 9, "role": "user", "text": "hi", …},
                       {"session_id": "ses_a", "turn_id": "turn_a", "n": 10, "role": "assistant", "text": "hello", …}
             outbox    {"session_id": "ses_a", "turn_id": "turn_a", "ordinal": 1, "payload": "…", …}
    turn_b   the same for ses_b, which it loaded at version 7; another writer has moved that session on to 8 since

and sends, in one transaction:

    commit_sessions(turns=[a, b])          moves ses_a on to version 5 and signs it turn_a; ses_b is not at 7: no row
    commit_routes(turns=[a, b])            each of these joins its rows with `ours`, the sessions that are signed by the
    commit_inbox(ended=[a, b])             turn in the row: so it writes what belongs to turn_a and nothing of turn_b
    commit_messages(messages=[a, a, b, b])
    commit_turns(turns=[a, b])
    commit_outbox(outbox=[a, b])
    commit_outcome(turns=[a, b])           answers {"won": '["turn_a"]', "parts": '[["turn_a", 71]]'}

The caller of turn_a gets its outbox rows, (71,). The caller of turn_b gets Superseded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from shared.errors import Locked, Superseded, Unavailable
from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.together import Together

AT_ONCE = 256  # commits that are written together at most


class BatchSql(Protocol):
    """The statements of batch.sql. Each takes the rows of all turns of a batch, as JSON."""

    def commit_sessions(self, *, turns: str) -> Step: ...
    def commit_new_sessions(self, *, turns: str) -> Step: ...
    def commit_routes(self, *, turns: str) -> Step: ...
    def commit_inbox(self, *, ended: str) -> Step: ...
    def commit_unjournaled(self, *, unjournaled: str) -> Step: ...
    def commit_messages(self, *, messages: str) -> Step: ...
    def commit_turns(self, *, turns: str) -> Step: ...
    def commit_usage(self, *, usage: str) -> Step: ...
    def commit_outbox(self, *, outbox: str) -> Step: ...
    def commit_outcome(self, *, turns: str) -> Step: ...


sql = declared(BatchSql)


@dataclass(slots=True)
class CommitRows:
    """One commit as rows: for each list its JSON objects, separated by commas; empty where it has none."""

    session_key: str
    turn_id: str
    opens_session: bool  # its session is not there yet
    turns: bytes
    ended: bytes
    unjournaled: bytes
    messages: bytes
    outbox: bytes
    usage: bytes = b""
    also: Sequence[Step] = ()  # statements that no other commit shares


class _WriteAlone(Exception):
    """Nothing of the batch was written: each of its commits is to be written alone."""


class CommitBatches:
    """Writes commits, as many at once as wait. Each caller gets the outcome of their own commit only."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opening = Together(self._write, AT_ONCE)  # commits that open a session (INSERT)
        self._moving = Together(self._write, AT_ONCE)  # commits that move one on (UPDATE)
        self._locked: set[str] = set()  # keys whose last commit met a locked row

    async def write(self, rows: CommitRows) -> tuple[int, ...]:
        """Write a commit and give its outbox rows. Superseded, AlreadyDone, Locked: nothing of it was written."""
        if rows.also or rows.session_key in self._locked:
            return await self._alone(rows)
        try:
            return await (self._opening if rows.opens_session else self._moving).call(rows)
        except _WriteAlone:
            return await self._alone(rows)

    async def _alone(self, rows: CommitRows) -> tuple[int, ...]:
        self._locked.discard(rows.session_key)
        try:
            [answer] = await self._write([rows])
        except Locked:
            self._locked.add(rows.session_key)
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _write(self, commits: Sequence[CommitRows]) -> list[tuple[int, ...] | BaseException]:
        """For each commit its outbox rows, or Superseded. All of them open a session, or none does."""
        try:
            *_, [outcome] = await self._database.write(*_steps(commits), raise_if_locked=True)
        except Exception as error:
            outage = isinstance(error, Unavailable) and not isinstance(error, Locked)
            if len(commits) == 1 or outage:
                raise
            # One commit cannot be kept or waits for a lock. The others must not suffer for it.
            return [_WriteAlone() for _ in commits]
        parts: dict[str, list[int]] = {turn_id: [] for turn_id in orjson.loads(outcome["won"] or "[]")}
        for turn_id, part in orjson.loads(outcome["parts"] or "[]"):
            parts[turn_id].append(part)
        return [
            tuple(sorted(parts[commit.turn_id])) if commit.turn_id in parts else Superseded(commit.session_key)
            for commit in commits
        ]


def _steps(commits: Sequence[CommitRows]) -> list[Step]:
    """The transaction: the compare-and-set first, the outcome last, and between them only lists that have rows."""
    turns = _json_list([commit.turns for commit in commits])
    opens = commits[0].opens_session
    steps = [sql.commit_new_sessions(turns=turns) if opens else sql.commit_sessions(turns=turns)]
    steps.append(sql.commit_routes(turns=turns))
    if ended := [commit.ended for commit in commits if commit.ended]:
        steps.append(sql.commit_inbox(ended=_json_list(ended)))
    if unjournaled := [commit.unjournaled for commit in commits if commit.unjournaled]:
        steps.append(sql.commit_unjournaled(unjournaled=_json_list(unjournaled)))
    if messages := [commit.messages for commit in commits if commit.messages]:
        steps.append(sql.commit_messages(messages=_json_list(messages)))
    steps.append(sql.commit_turns(turns=turns))
    if usage := [commit.usage for commit in commits if commit.usage]:
        steps.append(sql.commit_usage(usage=_json_list(usage)))
    # Always there, even without rows: the outcome selects from what it gives.
    steps.append(sql.commit_outbox(outbox=_json_list([commit.outbox for commit in commits if commit.outbox])))
    for commit in commits:
        steps += commit.also
    steps.append(sql.commit_outcome(turns=turns))
    return steps


def _json_list(rows: list[bytes]) -> str:
    return f"[{b','.join(rows).decode()}]"

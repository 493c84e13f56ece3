"""Sessions and their transcripts: load a window, commit a turn.

The commit is the guarantee. It compares and sets the session's version, and every other row of it is written only if
that succeeded, in one transaction. Whoever loses the race leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.clock import now_ms
from shared.codec import encode_inbound, encode_text, storable
from shared.control import conversation_of, is_control_key
from shared.errors import Superseded
from shared.messages import Destination, Entry, Inbound, Mail, Reply, Session, State
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.store.database import Database, Row, Step, step
from shared.store.journal import first_session_id
from shared.window import Window, read_entry

LATEST = 2**62  # a row number beyond all others
ROWS_AT_ONCE = 2000  # that are read to be summarised


@dataclass(frozen=True, slots=True)
class Standing:
    """What the database knows of an inbound: whether it has ended, and how many attempts failed."""

    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How mail ends: its recorded state and, for a dead letter, why."""

    state: State = State.ANSWERED
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Also:
    """A further statement of a commit. It hangs on `{{ours}}`, knows the session's and the turn's ids, key and time, and
    must not change the session's own row: PostgreSQL gets the commit as one statement, and that changes a row once."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does to the session besides adding rows."""

    title: str | None = None
    inactive_from: int | None = None  # rows from here to the last one loaded leave the conversation, and stay on disk
    next_session_id: str | None = None  # this session ends, and the key talks to a new one
    end_reason: str | None = None
    switch_to: str | None = None  # the key talks to this session from now on, which is there already
    facts: Mapping[tuple[str, str], str | None] = field(default_factory=dict)  # (scope, name) -> value; None forgets
    also: tuple[Also, ...] = ()  # statements of a feature's own


NO_CHANGE = Change()


@dataclass(frozen=True, slots=True)
class Proof:
    """Who ran the turn, and when: what a trace shows."""

    turn_id: str
    worker: str
    attempts: int
    claimed_at: int
    started_at: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The session as it stands now, and the outbox rows to publish."""

    session: Session
    destination: str
    outbox: tuple[int, ...]
    changed: bool = False  # more than rows were added: read the session again before the next turn


@dataclass(frozen=True, slots=True)
class LastSaid:
    n: int
    text: str
    rows_from_here: int


class Transcript:
    def __init__(self, database: Database, history_messages: int) -> None:
        self._database = database
        self._window = history_messages

    async def load(self, session_key: str, inbound_id: str) -> tuple[Session, Standing | None]:
        """The session of a key with the end of its transcript, and how an inbound stands. Costs the window, not the history."""
        found, rows, facts, standing = await self._database.read(
            step("load_session", session_key=session_key),
            step("load_window", session_key=session_key, limit=self._window, before=LATEST),
            step("load_facts", session_key=session_key),
            step("load_standing", id=inbound_id),
        )
        stands = Standing(**standing[0]) if standing else None
        if not found:
            return Session(first_session_id(session_key), 0, 0, 0, Window(None, self._window)), stands
        row = found[0]
        history = Window(rows[0]["rows"], self._window)
        version, count = row["version"] or 0, row["message_count"] or 0
        known = {fact["name"]: fact["value"] for fact in facts}
        return Session(
            row["session_id"], version, count, row["done_seq"], history, row["updated_at"] or 0, known, row["owner"]
        ), stands

    async def commit(
        self,
        session: Session,
        session_key: str,
        mail: Sequence[Mail],
        entries: Sequence[Entry],
        replies: Sequence[Reply],
        ending: Ending,
        proof: Proof,
        change: Change = NO_CHANGE,
    ) -> Committed:
        """End the mail, add the rows and the replies: all of it, or Superseded and none. AlreadyDone for known mail."""
        now = now_ms()
        stamp = {"session_id": session.id, "turn_id": proof.turn_id, "now": now}
        keyed = {**stamp, "session_key": session_key}
        settled = {"state": ending.state.value, "reason": ending.reason, "attempts": proof.attempts}
        done_seq = max((m.seq for m in mail if m.journaled), default=0)

        talks_to = change.next_session_id or change.switch_to or session.id
        ended_at = now if change.next_session_id or change.end_reason else None
        facts = dict(change.facts)
        if talks_to != session.id and (left := f"joined:{session_key}") in session.facts:
            facts[session.id, left] = None
        owner = session.owner
        if owner is None or change.next_session_id is not None:  # a session begins, or is older than owners
            owner = _owner(session_key, mail) or owner
        about = {"added": len(entries), "title": change.title, "ended_at": ended_at, "end_reason": change.end_reason}
        about["owner"] = owner

        if session.version == 0:
            steps = [step("commit_new_session", **about, **keyed)]
        else:
            steps = [step("commit_session", version=session.version, **about, **stamp)]
        steps.append(step("commit_route", done_seq=done_seq, talks_to=talks_to, **keyed))
        if change.next_session_id is not None:
            steps.append(step("commit_next_session", next_session_id=change.next_session_id, owner=owner, **keyed))
            steps.append(step("commit_flush", row_count=session.message_count + len(entries), **keyed))
        if change.inactive_from is not None:
            rows = {"from_n": change.inactive_from, "to_n": session.message_count}
            steps.append(step("commit_inactive", **rows, **stamp))
        for m in mail:
            steps.append(
                step("commit_inbox", id=m.inbound.id, **settled, **stamp)
                if m.journaled
                else _unjournaled(m, settled, keyed)
            )
            if ending.state is State.DEAD:
                steps.append(_dead(m.inbound, ending, proof, keyed))
        for n, entry in enumerate(entries, session.message_count + 1):
            row = {
                "role": entry.role,
                "text": storable(entry.text),
                "data": encode_text(entry.data),
                "inbound_id": entry.inbound_id,
            }
            steps.append(step("commit_message", n=n, **row, **stamp))
        for (scope, name), value in facts.items():
            fact = {"scope": scope, "name": name}
            steps.append(
                step("commit_no_fact", **fact, **stamp)
                if value is None
                else step("commit_fact", value=storable(value), **fact, **stamp)
            )
        steps += (step(also.name, **also.values, **keyed) for also in change.also)
        turn = {"outcome": ending.state.value, "attempts": proof.attempts, "worker": proof.worker}
        times = {"claimed_at": proof.claimed_at, "started_at": proof.started_at}
        steps.append(step("commit_turn", **turn, **times, **keyed))
        destination, parts = _parts(mail, replies, keyed)
        steps += parts

        results = await self._database.write(*steps)
        if not results[0]:
            raise Superseded(session_key)
        moved = Session(
            session.id,
            session.version + 1,
            session.message_count + len(entries),
            max(session.done_seq, done_seq),
            session.history.and_then(entries),
            now,
            session.facts,
            owner,
        )
        outbox = tuple(rows[0]["id"] for rows in results[len(results) - len(parts) :])
        changed = change is not NO_CHANGE and replace(change, title=None) != NO_CHANGE  # no turn reads the title
        return Committed(moved, destination, outbox, changed)

    async def last_said(self, session_id: str) -> LastSaid | None:
        """The last thing that the user said, commands aside. None: nothing yet."""
        [rows] = await self._database.read(step("last_user_row", session_id=session_id))
        return LastSaid(**rows[0]) if rows else None

    async def window(self, session_key: str, before: int) -> Window:
        """The end of the transcript as it stood before a given row."""
        query = step("load_window", session_key=session_key, limit=self._window, before=before)
        [rows] = await self._database.read(query)
        return Window(rows[0]["rows"], self._window)

    async def after(self, session_id: str, after: int, until: int) -> tuple[list[tuple[int, Entry]], bool]:
        """The numbered rows of a conversation in a range, oldest first; and whether there are more than were read."""
        values = {"session_id": session_id, "after": after, "until": until, "limit": ROWS_AT_ONCE + 1}
        [rows] = await self._database.read(step("rows_to_compress", **values))
        numbered = [(row.pop("n"), read_entry(**row)) for row in rows[:ROWS_AT_ONCE]]
        return numbered, len(rows) > ROWS_AT_ONCE

    async def recent(self, limit: int) -> list[Row]:
        [rows] = await self._database.read(step("sessions_recent", limit=limit))
        return rows

    async def find(self, key_or_id: str) -> Row | None:
        by_key, by_id = await self._database.read(
            step("session_by_key", session_key=key_or_id), step("session_by_id", session_id=key_or_id)
        )
        rows = by_key or by_id
        return rows[0] if rows else None

    async def messages(self, session_id: str, limit: int) -> list[Row]:
        """The end of a transcript, oldest first."""
        [rows] = await self._database.read(step("messages_of_session", session_id=session_id, limit=limit))
        return rows[::-1]

    async def delete(self, session_id: str, version: int) -> bool:
        """Remove a session for good, unless it has moved on since it was looked at. Its key then begins an empty one."""
        parts = (step(name, session_id=session_id) for name in ("delete_messages", "delete_facts", "delete_search"))
        gone, *_ = await self._database.write(step("delete_session", session_id=session_id, version=version), *parts)
        return bool(gone)

    async def turn(self, turn_id: str) -> Row | None:
        [rows] = await self._database.read(step("turn_by_id", turn_id=turn_id))
        return rows[0] if rows else None


def _owner(session_key: str, mail: Sequence[Mail]) -> str | None:
    """Whose a session is that begins with this mail. Control messages are no conversation of anybody's."""
    if not mail or is_control_key(session_key):
        return None
    return owner_of(SessionKey.parse(session_key), mail[-1].inbound.source)


def _unjournaled(mail: Mail, settled: Mapping[str, Any], keyed: Mapping[str, Any]) -> Step:
    inbound = mail.inbound
    return step(
        "commit_unjournaled",
        id=inbound.id,
        event_id=inbound.event_id,
        platform=inbound.source.platform,
        seq=mail.seq,
        payload=encode_inbound(inbound).decode(),
        received_at=inbound.received_at,
        **settled,
        **keyed,
    )


def _dead(inbound: Inbound, ending: Ending, proof: Proof, keyed: Mapping[str, Any]) -> Step:
    payload = encode_inbound(inbound).decode()
    about = {"reason": ending.reason or "failed", "detail": storable(ending.detail), "attempts": proof.attempts}
    return step("commit_dead", id=inbound.id, payload=payload, **about, **keyed)


def _parts(mail: Sequence[Mail], replies: Sequence[Reply], keyed: Mapping[str, Any]) -> tuple[str, list[Step]]:
    """One outbox row per part. Replies go where the last of the mail came from; a commit without mail has none."""
    if not mail:
        return "", []
    source, answers = mail[-1].inbound.source, mail[-1].inbound.message
    destination = str(Destination(source.platform, source.account, source.chat))
    in_reply_to = [m.inbound.event_id for m in mail]
    steps = []
    for ordinal, reply in enumerate(replies, 1):
        payload = {
            "source": source,
            "in_reply_to": in_reply_to,
            "part": ordinal,
            "parts": len(replies),
            "text": storable(reply.text),
            "media": reply.media,
            "answers": answers,
        }
        row = {
            "idempotency_key": f"out_{keyed['turn_id']}_{ordinal}",
            "ordinal": ordinal,
            "payload": encode_text(payload),
            "conversation": conversation_of(keyed["session_key"]),
        }
        steps.append(step("commit_outbox", destination=destination, platform=source.platform, **row, **keyed))
    return destination, steps

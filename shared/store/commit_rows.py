"""A commit as rows: what each statement of its transaction is given, before anything is written.

| list | table | one element |
|---|---|---|
| `turns` | sessions, routes, turns | the turn: which session it moves on from which version, and to what |
| `ended` | inbox | a journaled inbound and the state in which it ends |
| `unjournaled` | inbox | an inbound that only Redis knew, with the state in which it ends |
| `messages` | messages | a row of the transcript |
| `usage` | usage | what the answers of one model cost |
| `outbox` | outbox | a part of a reply |

Every element names its session and its turn: it is written only if that turn won that session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import orjson

from shared.codec import encode_text, storable
from shared.mail import encode_mail
from shared.messages import Entry, Mail, State
from shared.store.change import Commit, Stamp
from shared.store.parts import PartRow
from shared.store.usage import CountedAside


class SignedRow(TypedDict):
    """What every element says of its commit."""

    session_id: str
    turn_id: str
    now: int


class MailId(TypedDict):
    """Names one inbound in the table inbox."""

    id: str


class TurnRow(SignedRow):
    """One turn, as the statements of a batch read it."""

    session_key: str
    version: int  # that the turn loaded
    mail: list[MailId]  # journaled inbounds that must still wait
    waiting: int  # how many these are
    added: int  # rows of the transcript
    title: str | None
    ended_at: int | None
    end_reason: str | None
    owner: str | None
    done_seq: int
    talks_to: str  # the session that the key talks to from now on
    outcome: str
    attempts: int
    worker: str
    claimed_at: int
    started_at: int


class EndedRow(SignedRow):
    """How one inbound ended."""

    id: str
    state: str
    reason: str | None
    attempts: int


class UnjournaledRow(EndedRow):
    """An inbound that the journal lacks: it came while the database was away, and is written together with its end."""

    session_key: str
    event_id: str
    platform: str
    seq: int
    payload: str
    received_at: int


class MessageRow(SignedRow):
    """One row of a transcript."""

    n: int
    role: str
    text: str
    data: str
    inbound_id: str | None


class UsageRow(CountedAside):
    """What the answers of one model cost in a turn."""

    turn_id: str


class OutboxRow(PartRow):
    """One part of a reply, and the session that said it."""

    session_id: str


def turn_row(commit: Commit, stamp: Stamp, *, added: int, owner: str | None) -> TurnRow:
    """The turn itself: the compare-and-set compares `version` and counts that all of `mail` still waits."""
    session, change, proof = commit.session, commit.change, commit.proof
    journaled = [mail for mail in commit.mail if mail.journaled]
    return {
        "session_id": stamp.session_id,
        "turn_id": stamp.turn_id,
        "now": stamp.now,
        "session_key": stamp.session_key,
        "version": session.version,
        "mail": [{"id": mail.inbound.id} for mail in journaled],
        "waiting": len(journaled),
        "added": added,
        "title": change.title,
        "ended_at": stamp.now if change.next_session_id or change.end_reason else None,
        "end_reason": change.end_reason,
        "owner": owner,
        "done_seq": in_line(journaled),
        "talks_to": change.next_session_id or change.switch_to or session.id,
        "outcome": commit.ending.state.value,
        "attempts": proof.attempts,
        "worker": proof.worker,
        "claimed_at": proof.claimed_at,
        "started_at": proof.started_at,
    }


def in_line(mail: Sequence[Mail]) -> int:
    """How far the mail reaches without a gap. What stands in a gap still waits, and must not count as done."""
    seqs = sorted(one.seq for one in mail)
    last = seqs[0] if seqs else 0
    for seq in seqs[1:]:
        if seq > last + 1:
            break
        last = seq
    return last


def ended_rows(commit: Commit, stamp: Stamp) -> list[EndedRow]:
    """How the journaled mail ends."""
    return [
        {
            "session_id": stamp.session_id,
            "turn_id": stamp.turn_id,
            "now": stamp.now,
            "id": mail.inbound.id,
            "state": _state(mail, commit),
            "reason": commit.ending.reason,
            "attempts": commit.proof.attempts,
        }
        for mail in commit.mail
        if mail.journaled
    ]


def unjournaled_rows(commit: Commit, stamp: Stamp) -> list[UnjournaledRow]:
    """The mail that only Redis knew, and how it ends."""
    return [
        {
            "session_id": stamp.session_id,
            "turn_id": stamp.turn_id,
            "now": stamp.now,
            "id": mail.inbound.id,
            "state": _state(mail, commit),
            "reason": commit.ending.reason,
            "attempts": commit.proof.attempts,
            "session_key": stamp.session_key,
            "event_id": mail.inbound.event_id,
            "platform": mail.inbound.source.platform,
            "seq": mail.seq,
            "payload": (mail.payload or encode_mail(mail.inbound)).decode(),
            "received_at": mail.inbound.received_at,
        }
        for mail in commit.mail
        if not mail.journaled
    ]


def message_rows(entries: Sequence[Entry], before: int, stamp: Stamp) -> list[MessageRow]:
    """Rows of the transcript, numbered after the `before` that are there."""
    return [
        {
            "session_id": stamp.session_id,
            "turn_id": stamp.turn_id,
            "now": stamp.now,
            "n": n,
            "role": entry.role,
            "text": entry.text,
            "data": encode_text(entry.data) if entry.data else "{}",
            "inbound_id": entry.inbound_id,
        }
        for n, entry in enumerate(entries, before + 1)
    ]


def usage_rows(commit: Commit, stamp: Stamp) -> list[UsageRow]:
    """What the turn's answers cost."""
    return [
        {**counted, "session_id": stamp.session_id, "turn_id": stamp.turn_id, "now": stamp.now}
        for counted in commit.change.usage
    ]


def outbox_rows(parts: Sequence[PartRow], stamp: Stamp) -> list[OutboxRow]:
    return [{**part, "session_id": stamp.session_id} for part in parts]


def _state(mail: Mail, commit: Commit) -> str:
    """How one of the commit's mail ends: those after the first were answered with it."""
    state = commit.ending.state
    return (State.MERGED if state is State.ANSWERED and mail is not commit.mail[0] else state).value


def json_objects(rows: Sequence[Mapping[str, object]]) -> bytes:
    """The rows as JSON objects, separated by commas, without characters that some database cannot keep."""
    if not rows:
        return b""
    try:
        text = orjson.dumps(rows)
        if b"\\u0000" not in text:
            return text[1:-1]
    except orjson.JSONEncodeError:
        pass
    kept = [{name: storable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
    return orjson.dumps(kept)[1:-1]

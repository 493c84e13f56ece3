"""The commit of a turn: the guarantee.

It compares and sets the session's version, and every other row of it is written only if that succeeded, in one
transaction. Whoever loses the race leaves no trace. Commits that wait for the database together are written together:
each statement gets the rows of all of them as one JSON list, so a crowd of turns costs little more than a turn. Where one
of them cannot be kept or meets a locked row, each of them is written alone, and the line goes on with the next ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from shared import log
from shared.clock import now_ms
from shared.codec import encode_text, storable
from shared.context.legal import keepable
from shared.errors import Locked, Superseded, Unavailable
from shared.ids import fresh_id
from shared.lane_key import CONTROL, Destination, conversation_of, lane_of
from shared.mail import encode_mail
from shared.messages import Entry, Inbound, Mail, Reply, Session, State
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.store.change import NO_CHANGE, Commit, Committed
from shared.store.database import Database, Row, Step, step
from shared.store.windows import Windows
from shared.together import Together

AT_ONCE = 256  # commits that are written together at most
PARTS = "commit_outbox"  # gives what the outcome asks for, even where there are none
_STATEMENTS = {  # and the list of rows that each of them is given; the compare-and-set stands before them
    "commit_routes": "turns",
    "commit_inbox": "ended",
    "commit_unjournaled": "unjournaled",
    "commit_messages": "messages",
    "commit_turns": "turns",
    PARTS: "outbox",
}
_NOTICE = ("idempotency_key", "turn_id", "ordinal", "conversation", "destination", "platform", "payload", "now")


@dataclass(slots=True)
class _Rows:
    """A commit as its rows."""

    session_key: str
    turn_id: str
    fresh: bool  # its session is not there yet
    rows: Mapping[str, bytes]  # by list: JSON, comma-separated
    also: list[Step] = field(default_factory=list)  # that no other commit shares


class _FellApart(Exception):
    """Nothing of the batch was written: each of its commits is to be written alone."""


class Commits:
    def __init__(self, database: Database, windows: Windows) -> None:
        self._database = database
        self._windows = windows
        self._first = Together(self._write, AT_ONCE)  # of sessions that are not there yet, by another statement than:
        self._further = Together(self._write, AT_ONCE)
        self._locked: set[str] = set()  # keys whose last commit met a locked row

    async def commit(self, commit: Commit) -> Committed:
        """End the mail, add the rows and the replies: all of it, or Superseded and none. AlreadyDone for known mail.

        Of tool results, those are added that answer a call: no model could be shown the others.
        """
        session, session_key, mail = commit.session, commit.session_key, commit.mail
        ending, proof, change = commit.ending, commit.proof, commit.change
        now, entries = now_ms(), keepable(commit.entries)
        if left_out := len(commit.entries) - len(entries):
            log.get().warning("tool results without a call left out", key=session_key, rows=left_out)
        stamp = {"session_id": session.id, "turn_id": proof.turn_id, "now": now}
        keyed = {**stamp, "session_key": session_key}
        settled = {"reason": ending.reason, "attempts": proof.attempts}
        journaled = [m for m in mail if m.journaled]
        done_seq = max((m.seq for m in journaled), default=0)
        owner = session.owner
        if owner is None or change.next_session_id is not None:  # a session begins, or is older than owners
            owner = _owner(commit) or owner
        turn = {
            **keyed,
            "version": session.version,
            "mail": [{"id": m.inbound.id} for m in journaled],
            "waiting": len(journaled),
            "added": len(entries),
            "title": change.title,
            "ended_at": now if change.next_session_id or change.end_reason else None,
            "end_reason": change.end_reason,
            "owner": owner,
            "done_seq": done_seq,
            "talks_to": change.next_session_id or change.switch_to or session.id,
            "outcome": ending.state.value,
            "attempts": proof.attempts,
            "worker": proof.worker,
            "claimed_at": proof.claimed_at,
            "started_at": proof.started_at,
        }
        destination, parts = parts_of(mail, commit.replies, keyed)
        rows: dict[str, list[Row]] = {
            "turns": [turn],
            "ended": [{**stamp, **settled, "id": m.inbound.id, "state": _state(m, commit)} for m in journaled],
            "unjournaled": [
                _unjournaled(m, {**settled, "state": _state(m, commit)}, keyed) for m in mail if not m.journaled
            ],
            "messages": [_message(n, entry, stamp) for n, entry in enumerate(entries, session.message_count + 1)],
            "outbox": parts,
        }
        also = _also(commit, len(entries), owner, keyed)
        lists = {name: _json(found) for name, found in rows.items() if found}
        written = _Rows(session_key, proof.turn_id, session.version == 0, lists, also)
        alone = also or session_key in self._locked
        outbox = await (self._alone(written) if alone else self._together(written))
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
        changed = change is not NO_CHANGE and replace(change, title=None) != NO_CHANGE  # no turn reads the title
        changed = changed or not session.is_loaded
        if not changed:
            self._windows.keep(session_key, proof.turn_id, moved.history)
        return Committed(moved, destination, outbox, changed)

    async def reject_waiting(
        self, session_key: str, mail: Mail, replies: Sequence[Reply], reason: str
    ) -> tuple[str, tuple[int, ...]] | None:
        """End one message that waits behind another of its key, without touching the session: a turn that runs there goes
        on, unless it answers this message too. Gives the destination and the outbox rows. None: it has ended, or it is the
        first in line. AlreadyDone for mail that only Redis knew and that has ended.
        """
        turn = {"session_key": session_key, "turn_id": f"drop_{fresh_id()}", "now": now_ms()}
        destination, parts = parts_of((mail,), replies, turn)
        id, settled = mail.inbound.id, {"state": State.REJECTED.value, "reason": reason, "attempts": 0}
        dropped, *told = await self._database.write(
            step("drop_waiting", id=id, reason=reason, **turn)
            if mail.journaled
            else step("drop_unjournaled", **_unjournaled(mail, settled, turn)),
            *(step("drop_notice", **{name: part[name] for name in _NOTICE}, id=id) for part in parts),
        )
        return (destination, tuple(row["id"] for [row] in told)) if dropped else None

    async def _write(self, commits: Sequence[_Rows]) -> list[tuple[int, ...] | BaseException]:
        """For each its outbox rows, or Superseded. They are all of new sessions or all of others."""
        lists = {name: _joined(commits, name) for name in ("turns", *_STATEMENTS.values())}
        turns, filled = lists["turns"], {name for commit in commits for name in commit.rows}
        steps = [step("commit_new_sessions" if commits[0].fresh else "commit_sessions", turns=turns)]
        steps += (
            step(name, **{given: lists[given]})
            for name, given in _STATEMENTS.items()
            if given in filled or name == PARTS
        )
        for commit in commits:
            steps += commit.also
        try:
            *_, [outcome] = await self._database.write(*steps, step("commit_outcome", turns=turns), gives_up=True)
        except Exception as error:
            outage = isinstance(error, Unavailable) and not isinstance(error, Locked)
            if len(commits) == 1 or outage:
                raise
            # One of them cannot be kept, or waits for a lock; the others have nothing to do with it.
            return [_FellApart() for _ in commits]
        parts: dict[str, list[int]] = {turn_id: [] for turn_id in orjson.loads(outcome["won"] or "[]")}
        for turn_id, part in orjson.loads(outcome["parts"] or "[]"):
            parts[turn_id].append(part)
        return [
            tuple(sorted(parts[commit.turn_id])) if commit.turn_id in parts else Superseded(commit.session_key)
            for commit in commits
        ]

    async def _together(self, commit: _Rows) -> tuple[int, ...]:
        try:
            return await (self._first if commit.fresh else self._further).call(commit)
        except _FellApart:
            return await self._alone(commit)

    async def _alone(self, commit: _Rows) -> tuple[int, ...]:
        self._locked.discard(commit.session_key)
        try:
            [answer] = await self._write([commit])
        except Locked:
            self._locked.add(commit.session_key)
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _joined(commits: Sequence[_Rows], name: str) -> str:
    """The rows of all the commits in one list."""
    return f"[{b','.join([commit.rows[name] for commit in commits if name in commit.rows]).decode()}]"


def _json(rows: list[Row]) -> bytes:
    """The rows, without characters that some database cannot keep."""
    try:
        text = orjson.dumps(rows)
        if b"\\u0000" not in text:
            return text[1:-1]
    except orjson.JSONEncodeError:
        pass
    kept = [{name: storable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
    return orjson.dumps(kept)[1:-1]


def _owner(commit: Commit) -> str | None:
    """Whose a session is that begins with this mail. Control messages are no conversation of anybody's."""
    if not commit.mail or lane_of(commit.session_key) == CONTROL:
        return None
    return owner_of(SessionKey.parse(commit.session_key), commit.mail[-1].inbound.source)


def _state(mail: Mail, commit: Commit) -> str:
    """How one of the commit's mail ends: those after the first were answered with it."""
    state = commit.ending.state
    return (State.MERGED if state is State.ANSWERED and mail is not commit.mail[0] else state).value


def _message(n: int, entry: Entry, stamp: Mapping[str, Any]) -> Row:
    data = encode_text(entry.data) if entry.data else "{}"
    return {**stamp, "n": n, "role": entry.role, "text": entry.text, "data": data, "inbound_id": entry.inbound_id}


def _unjournaled(mail: Mail, settled: Mapping[str, Any], keyed: Mapping[str, Any]) -> Row:
    inbound = mail.inbound
    return {
        **keyed,
        **settled,
        "id": inbound.id,
        "event_id": inbound.event_id,
        "platform": inbound.source.platform,
        "seq": mail.seq,
        "payload": (mail.payload or encode_mail(inbound)).decode(),
        "received_at": inbound.received_at,
    }


def parts_of(mail: Sequence[Mail], replies: Sequence[Reply], keyed: Mapping[str, Any]) -> tuple[str, list[Row]]:
    """One outbox row per part. Replies go where the last of the mail came from; a commit without mail has none."""
    if not mail:
        return "", []
    source, answers = mail[-1].inbound.source, mail[-1].inbound.message
    destination = str(Destination(source.platform, source.account, source.chat))
    in_reply_to = [m.inbound.event_id for m in mail]
    rows = []
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
            "destination": destination,
            "platform": source.platform,
        }
        rows.append({**keyed, **row})
    return destination, rows


def _also(commit: Commit, added: int, owner: str | None, keyed: Mapping[str, Any]) -> list[Step]:
    """What only some commits do."""
    session, change = commit.session, commit.change
    steps: list[Step] = []
    if commit.ending.state is State.DEAD:
        steps += (_dead(mail.inbound, commit, keyed) for mail in commit.mail)
    if change is NO_CHANGE:
        return steps
    facts = dict(change.facts)
    talks_to = change.next_session_id or change.switch_to or session.id
    if talks_to != session.id and (left := f"joined:{keyed['session_key']}") in session.facts:
        facts[session.id, left] = None
    if change.next_session_id is not None:
        steps.append(step("commit_next_session", next_session_id=change.next_session_id, owner=owner, **keyed))
    if change.next_session_id is not None or change.end_reason is not None:  # it ends: /new, a reset, /resume
        steps.append(step("commit_flush", row_count=session.message_count + added, **keyed))
    if change.inactive_from is not None:
        rows = {"from_n": change.inactive_from, "to_n": session.message_count}
        steps.append(step("commit_inactive", **rows, **keyed))
    for (scope, name), value in facts.items():
        fact = {"scope": scope, "name": name}
        steps.append(
            step("commit_no_fact", **fact, **keyed)
            if value is None
            else step("commit_fact", value=storable(value), **fact, **keyed)
        )
    steps += (step(also.name, **also.values, **keyed) for also in change.also)
    return steps


def _dead(inbound: Inbound, commit: Commit, keyed: Mapping[str, Any]) -> Step:
    payload, ending = encode_mail(inbound).decode(), commit.ending
    about = {"reason": ending.reason or "failed", "detail": storable(ending.detail), "attempts": commit.proof.attempts}
    return step("commit_dead", id=inbound.id, payload=payload, **about, **keyed)

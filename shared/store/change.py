"""What a commit is told and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from shared.messages import Entry, Mail, Reply, Session, State
from shared.store.database.statements import Step
from shared.store.usage import Counted
from shared.value import value


@value
class Ending:
    """How mail ends: its recorded state and, for a dead letter, why."""

    state: State = State.ANSWERED
    reason: str | None = None
    detail: str = ""


ANSWERED = Ending()


@value
class Stamp:
    """What a commit signs its rows with."""

    session_id: str
    turn_id: str
    session_key: str
    now: int  # wall clock, ms


# A further statement of a commit, made by the store module of a feature. It writes only where batch.sql's `ours` has the
# session and the turn of the stamp. It must not change the session's own row: PostgreSQL gets the commit as one statement,
# and one statement changes a row once.
Also = Callable[[Stamp], Step]


@value
class Change:
    """What a commit does to the session besides adding rows."""

    title: str | None = None
    inactive_from: int | None = None  # rows from here to the last one loaded leave the conversation, and stay on disk
    next_session_id: str | None = None  # this session ends, and the key talks to a new one
    end_reason: str | None = None
    switch_to: str | None = None  # the key talks to this session from now on, which is there already
    facts: Mapping[tuple[str, str], str | None] = field(default_factory=dict)  # (scope, name) -> value; None forgets
    also: tuple[Also, ...] = ()  # statements of a feature's own, which make a commit one that is written alone
    usage: tuple[Counted, ...] = ()  # what the turn's answers cost, by model


NO_CHANGE = Change()


@value
class Proof:
    """Who ran the turn, and when: what a trace shows."""

    turn_id: str
    worker: str
    attempts: int
    claimed_at: int
    started_at: int


@value
class Commit:
    """All that one transaction writes: everything is kept, or nothing.

    `session` is the one that the turn has loaded: if its version has changed since, another writer won. A commit without mail changes
    the session between two turns.
    """

    session: Session
    session_key: str
    proof: Proof
    mail: Sequence[Mail] = ()  # that ends by this commit; replies go where the last of it came from
    entries: Sequence[Entry] = ()  # rows for the transcript
    replies: Sequence[Reply] = ()  # parts for the outbox
    ending: Ending = ANSWERED
    change: Change = NO_CHANGE


@value
class Committed:
    """The session as it stands now, and the outbox rows to publish."""

    session: Session
    destination: str
    outbox: tuple[int, ...]
    changed: bool = False  # more than rows were added: read the session again before the next turn
    elsewhere: Mapping[int, str] = field(default_factory=dict)  # the destinations of rows that go to other chats

    @property
    def by_destination(self) -> Mapping[str, Sequence[int]]:
        """The rows that each destination waits for, in order."""
        if not self.elsewhere:
            return {self.destination: self.outbox}
        rows: dict[str, list[int]] = {}
        for row in self.outbox:
            rows.setdefault(self.elsewhere.get(row, self.destination), []).append(row)
        return rows

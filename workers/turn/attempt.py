"""What is handed from stage to stage: the key that a worker holds, and one attempt at the key's first mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.agent.turn import Said
from shared.ids import fresh_id
from shared.lane import Lease
from shared.lane.session_lock import SessionLock
from shared.messages import Entry, Inbound, Mail, Session, Source
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.store.change import Also, Proof
from shared.store.runs import run_of
from shared.value import value
from workers.commands import Again
from workers.turn.busy.watch import BusyWatch
from workers.turn.parts import TurnParts
from workers.turn.steps import RunLog


@value
class HeldKey:
    """A key under our lease, between two turns."""

    lease: Lease
    parts: TurnParts
    lock: SessionLock
    claimed_at: int  # when the mail that is first now was taken from the mailbox
    session: Session | None = None  # as our last commit left it; None: it must be loaded
    turns: int = 0  # that were committed under this lease

    def unloaded(self) -> HeldKey:
        """The same key, whose session must be loaded before the next turn."""
        return HeldKey(self.lease, self.parts, self.lock, self.claimed_at, None, self.turns)


@value
class TakenUp:
    """A run that waited for a person, and goes on with this mail."""

    run_id: str
    answers: Mapping[str, Said]  # by Ask.id
    ends_as: str  # how its questions end: answered or expired
    kept: Also  # keeps the answer, if the run asks further questions
    asker: Source  # on whose behalf it runs, whoever answered
    ask_id: str  # the question that was answered last


@value
class Attempt:
    """One attempt at the first mail of a key. Stages that learn more about it give a new one on."""

    lease: Lease
    parts: TurnParts
    session: Session  # as loaded: the commit compares its version
    mail: Mail
    inbound: Inbound  # what is to be answered: the mail's words, an album's as one, or those that /retry repeats
    number: int  # 1 for the first attempt; 0: none was begun
    claimed_at: int
    started_at: int
    isolated: bool = False  # an attempt before this one may have killed its worker
    outage_ms: int | None = None  # how long the model's provider has been away, as the journal knows
    album: tuple[Mail, ...] = ()  # further mail that is answered together with the first
    seed: tuple[Entry, ...] = ()  # rows that a new session begins with
    again: Again | None = None  # /retry: the history to run on, and what the commit takes back
    closing_notices: tuple[str, ...] = ()  # what the chat is told after the answer
    may_have_run: bool = False  # an attempt before this one may have called tools
    may_have_draft: bool = False  # one may have begun to show its answer; attempts that were given back count no number
    taken_up: TakenUp | None = None  # the run that the mail's answer takes up
    busy: BusyWatch | None = None  # the mail that comes while the agent runs; None: it does not run yet
    steps: RunLog | None = None  # what this attempt and those before it have done; None: not looked for yet

    @property
    def key(self) -> str:
        """The session key that the mail came to."""
        return self.lease.key

    @property
    def run_id(self) -> str:
        """Names the work on this mail: the same on every attempt."""
        return self.taken_up.run_id if self.taken_up is not None else run_of(self.mail.inbound.id)

    @property
    def has_run(self) -> bool:
        """Whether there may be steps that end with the mail."""
        if self.taken_up is not None:
            return True
        return self.may_have_run if self.steps is None else self.steps.is_open

    def with_taken(self, ids: Sequence[str]) -> Attempt:
        """The attempt, with the mail that its agent took in while it ran: that ends with it."""
        if not ids or self.busy is None:
            return self
        return replace(self, album=(*self.album, *self.busy.inbox.mail_of(ids)))

    def proof(self) -> Proof:
        """The record of a turn that is to be committed, with a turn id that nobody else has."""
        return Proof(f"turn_{fresh_id()}", self.parts.worker, self.number, self.claimed_at, self.started_at)

    def owner(self) -> str | None:
        """Whose conversation it is, which is also who pays for it."""
        known = self.session.owner or self.inbound.owner
        return known or owner_of(SessionKey.parse(self.key), self.inbound.source)

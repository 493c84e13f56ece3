"""The values that move through the pipeline. All frozen; raw dicts stop at normalise.py and codec.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from shared.address import Address
from shared.choices import Choice
from shared.value import value

if TYPE_CHECKING:
    from shared.window import Window

CHAT_TYPES = frozenset({"dm", "group", "channel", "thread", "other"})


class State(StrEnum):
    """Where an inbound stands. It ends in exactly one of the states after PENDING."""

    PENDING = "pending"
    ANSWERED = "answered"
    MERGED = "merged"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    EXPIRED = "expired"
    DEAD = "dead"


class Kind(StrEnum):
    """What is done with an inbound."""

    MESSAGE = "message"  # somebody said it: it is answered
    ANNOUNCEMENT = "announcement"  # ours to say: its text goes to the chat as it is, and no agent runs
    FIRE = "fire"  # the time of a schedule has come: the agent runs on its text
    EXPIRY = "expiry"  # the time of a question is over: the run that asked it goes on without an answer
    TASK = "task"  # something is to be done in the background: the agent runs on its text
    RESULT = "result"  # a task that an agent started has ended: the agent reads what came of it
    STEP = "step"  # the conversation goes on by itself towards its goal: the agent runs on what it handed over
    CHECK = "check"  # shows that a message comes all the way: no agent runs, and nothing of it is kept

    @property
    def is_said(self) -> bool:
        """Whether somebody said it, so that its words may command something or answer a question."""
        return self is Kind.MESSAGE

    @property
    def is_dropped_by_stop(self) -> bool:
        """Whether /stop ends it: what a chat said and what is done for it in the background, and nothing that is ours to say."""
        return self in (Kind.MESSAGE, Kind.TASK, Kind.STEP)


@value
class Source:
    """Who says something, and where. Ids are the platform's own, as text."""

    platform: str
    chat: str
    chat_type: str = "dm"
    account: str = ""  # which of our bots on that platform; empty while there is one
    user: str | None = None
    user_alt: str | None = None
    thread: str | None = None
    scope: str | None = None  # workspace or guild
    chat_name: str | None = None
    user_name: str | None = None
    topic: str | None = None

    @property
    def address(self) -> Address:
        """Where an answer goes, whoever is answered."""
        return Address(self.platform, self.account, self.chat, self.thread)


@value
class Media:
    """A file by reference; its bytes never travel through Redis."""

    url: str
    type: str | None = None
    name: str | None = None


@value
class Inbound:
    """One normalised message. `id` follows from platform, account and event id, so a redelivery has the same."""

    id: str
    event_id: str
    source: Source
    text: str
    media: tuple[Media, ...] = ()
    reply_to: str | None = None
    mentioned: bool = True
    sent_at: int | None = None  # wall clock, ms, as the platform said
    received_at: int = 0  # wall clock, ms
    message: str | None = None  # the platform's own id of it, where a reply can point at it
    album: str | None = None  # what the platform sends in several messages and its user in one
    earlier: str | None = None  # what the chat said before it, to others, that it refers to
    earlier_by: str | None = None  # who said that: one of their ids, as `source.user` or `user_alt` would have it
    terms: Terms | None = None  # how it is to be answered, where its sender says so; None: as any other
    trace: str | None = None  # W3C traceparent of the span that accepted it; None: it is not traced

    @property
    def is_stateless(self) -> bool:
        """Whether it is answered from what came with it alone, and nothing of it is kept."""
        return self.terms is not None and self.terms.history is not None

    @property
    def kind(self) -> Kind:
        """What is done with it."""
        return Kind.MESSAGE

    @property
    def owner(self) -> str | None:
        """Whose rights it has, where its source does not say; see shared/owner.py."""
        return None

    @property
    def asker(self) -> Source:
        """Whose wish it is: tools act with their rights."""
        return self.source


@value
class OwnInbound(Inbound):
    """An inbound that nobody said: ours to say, a schedule's to ask, the end of a question's time, or a check of ours."""

    purpose: Kind = Kind.ANNOUNCEMENT
    owned_by: str | None = None

    @property
    def is_stateless(self) -> bool:
        return self.purpose is Kind.CHECK

    @property
    def kind(self) -> Kind:
        return self.purpose

    @property
    def owner(self) -> str | None:
        return self.owned_by


@value
class TaskInbound(OwnInbound):
    """An inbound of background work: what a task is asked, or what came of it."""

    asked_by: Source | None = None

    @property
    def asker(self) -> Source:
        return self.asked_by or self.source


@value
class Mail:
    """An inbound in its key's mailbox. Not journaled means: its place in the mailbox is all that orders it."""

    seq: int
    inbound: Inbound
    journaled: bool = True
    payload: bytes = b""  # the inbound as the mailbox has it, where only that knows it


@value
class Entry:
    """One row of a transcript."""

    role: str  # user, assistant, tool or system
    text: str
    inbound_id: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)  # tool calls, sender, media: what the role needs


@value
class Terms:
    """How a program wants its message answered, beyond what the message says."""

    agent: str = ""  # the agent that it chose; empty: ROUTING decides
    instructions: str = ""  # what the agent is told beside its own system prompt, in this turn only
    history: tuple[Entry, ...] | None = None  # what was said before. None: the session knows
    said_before: tuple[str, ...] = ()  # what the user said before it in this conversation, as the sender shows it
    is_watched: bool = False  # somebody reads the answer while it is being written


@value
class Reply:
    """Something to say: in the chat that the turn answers, unless `to` names another."""

    text: str
    media: tuple[Media, ...] = ()
    to: Address | None = None
    edits: str | None = (
        None  # the receipt of a message of ours there: it is changed to this, where the platform can do that
    )
    draft: str | None = None  # set by Keyturn: the draft (shared/store/drafts.py) whose place it takes, if there is one
    shown: str = ""  # set by Keyturn: what the draft is known to show
    choices: tuple[Choice, ...] = ()  # set by Keyturn: the answers to its question, where the platform has buttons


@value
class Part:
    """One send: a reply, or a piece of one. `idempotency_key` is the same on every try.

    `source` is who is answered; the part goes to `to`.
    """

    id: int
    idempotency_key: str
    session_key: str
    source: Source
    in_reply_to: tuple[str, ...]
    part: int
    parts: int
    text: str
    media: tuple[Media, ...] = ()
    attempts: int = 0  # begun before
    waits: int = 0  # of these, how many the platform answered with a request to wait
    answers: str | None = None  # the platform's id of the message that it belongs to
    sending: bool = False  # a send was begun and nobody knows how it ended
    sending_for: timedelta = timedelta(0)  # how long ago that was, by the database's clock
    elsewhere: Address | None = None  # where it goes, if not to where the source speaks
    edits: str | None = None  # the message of ours that it changes
    draft: str | None = None  # the draft whose place it takes, if that was sent
    shown: int = 0  # how many characters of its text the draft is known to show
    closed: str | None = None  # why the chat takes nothing from us, where it did not lately
    trace: str | None = None  # W3C traceparent of the commit that decided it; None: it is not traced
    choices: tuple[Choice, ...] = ()  # the buttons below it

    @property
    def is_answer(self) -> bool:
        """Whether somebody in the chat that it goes to asked for it, by a message."""
        there = self.elsewhere
        return bool(self.in_reply_to) and (there is None or there.place == self.source.address.place)

    @property
    def to(self) -> Address:
        return self.elsewhere or self.source.address

    @property
    def chat_type(self) -> str:
        """The kind of chat that it goes to, as far as we know."""
        there = self.elsewhere
        return self.source.chat_type if there is None or there.place == self.source.address.place else "other"

    @property
    def counted(self) -> int:
        """The attempts before that count towards DELIVERY_MAX_ATTEMPTS."""
        return self.attempts - self.waits


def key_digest(idempotency_key: str) -> str:
    """Tells parts of two databases apart that have the same number. For platforms that bring back what a send carried."""
    return blake2b(idempotency_key.encode(), digest_size=8).hexdigest()


@value
class Receipt:
    """What the platform said when it took a part. It is kept, so that the message can be changed later.

    The message id is in whatever form the platform's sender knows it again by; empty where there is none.
    """

    message_id: str = ""


@value
class PromptFacts:
    """What a model is told besides the conversation, as it was read together with the session."""

    notes_of: str  # whose notes these are; empty: nobody's were asked for
    notes: tuple[str, ...]  # oldest first
    homes: Mapping[str, str]  # the facts that /sethome keeps: see shared/homes.py


@value
class Session:
    """A conversation as it was read: whoever commits must still find it at this version. Version 0 = not there yet."""

    id: str
    version: int
    message_count: int
    done_seq: int
    history: Window
    updated_at: int = 0  # wall clock, ms: its last commit
    facts: Mapping[str, str] = field(default_factory=dict)  # small named values; see shared/store/facts.py
    owner: str | None = None  # whose it is; see shared/owner.py
    is_loaded: bool = True  # False: neither history nor facts were read, and the next turn has to
    prompt_facts: PromptFacts | None = None  # None: not read with it, or read before an earlier turn

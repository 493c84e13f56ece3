"""What an agent is given, and what comes of its events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from shared.agent.events import Ask
from shared.agent.files import Files, NoFiles
from shared.agent.inbox import EmptyInbox, Inbox
from shared.agent.steps import Steps, UnrecordedSteps
from shared.messages import Entry, Inbound, Reply, Source
from shared.value import value


@value
class Speaker:
    """Who speaks, and on whose behalf tools act. Holds names of credentials, never the secrets themselves."""

    owner: str = ""  # whose conversation it is: see shared/owner.py
    rights: frozenset[str] = frozenset()  # empty: nothing grants any yet
    credentials: tuple[str, ...] = ()  # empty: nothing keeps any yet
    shown_as: str = ""  # how the model reads their name, where several people share the conversation; else empty


@value
class Said:
    """What a person said to an `Ask`, or that nobody did in time."""

    text: str = ""
    choice: str | None = None
    by: str = ""  # an owner, as `Speaker.owner`
    at: int = 0  # wall clock, ms
    is_expired: bool = False


@value
class Turn:
    """What an agent is given: who speaks, what was said before, what was said now, and what it may do meanwhile."""

    id: str  # of this attempt
    session_key: str
    session_id: str
    history: Sequence[Entry]
    mail: tuple[Inbound, ...]
    attempt: int = 1
    context: str = ""  # where the agent runs, for agents that want it: see workers/side/context.py
    model: str = ""  # the model that this conversation was switched to; empty: the agent's own
    instructions: str = ""  # what the sender wants the agent told beside its own system prompt, in this turn only
    notes: tuple[str, ...] = ()  # what the model is told beside the mail, in this turn only
    memory: tuple[str, ...] = ()  # what is known from conversations before this one
    sender_key: str = (
        ""  # marks senders, where several people share the conversation: see shared/context/shared_thread.py
    )
    speaker: Speaker = Speaker()
    run: str = ""  # the same on every attempt at the same work
    deadline: float = math.inf  # by time.monotonic(): the turn is cut short then
    rows: tuple[Entry, ...] = ()  # what earlier attempts finished, in order: the rows of `steps`
    answers: Mapping[str, Said] = field(default_factory=dict)  # what people said to the questions of `rows`, by Ask.id
    asking: tuple[str, ...] = ()  # runs of this conversation that wait for a person, by `run`
    asker: Source | None = (
        None  # who asked for the run, where an answer takes it up that may be another's; None: the mail's
    )
    steps: Steps = field(default_factory=UnrecordedSteps, compare=False, repr=False)
    inbox: Inbox = field(default_factory=EmptyInbox, compare=False, repr=False)
    files: Files = field(default_factory=NoFiles, compare=False, repr=False)  # reads what `mail` and `history` refer to


@value
class Result:
    """What came of a turn: the agent's own rows for the transcript, and what the chat is told."""

    entries: tuple[Entry, ...] = ()
    replies: tuple[Reply, ...] = ()
    spent: tuple[Mapping[str, Any], ...] = ()  # usage that none of the rows carries
    asks: tuple[Ask, ...] = ()  # the turn ends with these questions; of its rows, only what they cost counts now
    took: tuple[str, ...] = ()  # ids of mail from the inbox that the model was shown: it ends with this turn

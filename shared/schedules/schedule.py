"""A schedule as it is kept."""

from __future__ import annotations

from enum import StrEnum

from shared.codec import message_id
from shared.messages import Inbound, Kind, OwnInbound, Source
from shared.schedules.rule import Rule
from shared.session_key import SessionKey
from shared.targets import Target
from shared.value import value

OUTLET = "schedule"  # stands for a platform in keys and addresses: answers of scheduled turns go there, and from there to targets


def is_unattended(inbound: Inbound) -> bool:
    """Whether a schedule asks, or it follows from what one asked: nobody reads along who could answer a question."""
    return inbound.kind is Kind.FIRE or inbound.asker.platform == OUTLET


class Missed(StrEnum):
    """What becomes of slots that nobody was there for."""

    LAST = "last"  # the last of them runs
    SKIP = "skip"  # none runs
    ALL = "all"  # each runs


class Overlap(StrEnum):
    """What becomes of a slot while the run before it has not ended."""

    SKIP = "skip"
    QUEUE = "queue"  # it runs after it
    ALL = "all"  # it runs beside it, in a conversation of its own


class ScheduleState(StrEnum):
    """Whether a schedule runs."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"  # no time is left


@value
class Schedule:
    """What is to run, when, for whom, and where its answers go."""

    id: str
    name: str
    owner: str  # whose rights it has; empty: the operator's
    agent: str
    rule: Rule
    text: str  # what the agent is asked
    targets: tuple[Target, ...]
    origin: Source | None = None  # the chat that asked for it
    missed: Missed = Missed.LAST
    overlap: Overlap = Overlap.SKIP
    window_ms: int | None = None  # slots that are later than this are missed; None: follows from the rule
    state: ScheduleState = ScheduleState.ACTIVE
    reason: str | None = None  # why it is paused
    due_at: int | None = None  # its next slot, wall clock, ms; None: there is none
    late_since: int | None = None  # when it was found late, while its late slots wait for their turn
    created_at: int = 0

    def key(self, slot: int) -> SessionKey:
        """The conversation that a slot runs in: the schedule's own or, where slots run beside each other, the slot's."""
        return slot_key(self.agent, self.id, self.overlap, slot)

    def fire(self, slot: int, now_ms: int, *, manual: bool = False) -> OwnInbound:
        """The inbound of a slot. Its id follows from schedule and slot, so a slot has one."""
        event_id = f"{self.id}:{'run:' if manual else ''}{slot}"
        return OwnInbound(
            message_id(OUTLET, "", event_id),
            event_id,
            Source(OUTLET, self.id, thread=self.key(slot).thread, chat_name=self.name),
            self.text,
            sent_at=slot,
            received_at=now_ms,
            purpose=Kind.FIRE,
            owned_by=self.owner or None,
        )


def slot_key(agent: str, schedule_id: str, overlap: Overlap, slot: int) -> SessionKey:
    """The conversation that a slot of a schedule runs in."""
    return SessionKey(agent, OUTLET, "", "dm", schedule_id, thread=str(slot) if overlap is Overlap.ALL else None)

"""A question as the chat reads it, and how a conversation remembers that one is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.agent.events import Ask
from shared.codec import message_id
from shared.messages import Inbound, Kind, OwnInbound, Session
from shared.store.asks import OverdueAsk

ASKING = "asking"  # a fact of a session: the runs that wait for a person, separated by spaces
EXPIRED = "question-expired"  # the event id of the mail that ends a question: this, the question, and which try it is


def waiting_runs(session: Session, run: str, *, waits: bool) -> Mapping[tuple[str, str], str | None]:
    """The fact that says which runs of the session wait for a person, when this one does or no longer does."""
    runs = [other for other in session.facts.get(ASKING, "").split() if other != run]
    return {(session.id, ASKING): " ".join([*runs, run] if waits else runs) or None}


def question_text(asks: Sequence[Ask]) -> str:
    """What the chat reads of the questions with which a turn ends."""
    if len(asks) == 1:
        return f"{asks[0].text}\n{_how_to_answer(asks[0], '')}".strip()
    return "\n".join(f"{n}. {ask.text} {_how_to_answer(ask, f' {n}')}".strip() for n, ask in enumerate(asks, 1))


def expiry_mail(ask: OverdueAsk, number: int, now: int) -> OwnInbound:
    """The mail that ends a question whose time is over. Its id follows from the question and the number of the try, and no
    platform's message can have it."""
    event_id = f"{EXPIRED}:{ask.id}:{number}"
    text = f"(Nobody answered this question in time: {ask.text})"
    id = message_id(EXPIRED, "", event_id)
    return OwnInbound(id, event_id, ask.source, text, received_at=now, purpose=Kind.EXPIRY)


def expired_ask(inbound: Inbound) -> str | None:
    """The question that this mail ends; None where it is other mail."""
    return inbound.event_id.split(":")[1] if inbound.kind is Kind.EXPIRY else None


def _how_to_answer(ask: Ask, number: str) -> str:
    if ask.call is not None and ask.choices:
        return f"(/approve{number} or /deny{number})"
    return f"({' / '.join(ask.choices)})" if ask.choices else ""

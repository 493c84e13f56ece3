"""A question as the chat reads it, and how a conversation remembers that one is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.agent.events import Ask
from shared.messages import Inbound, Session

ASKING = "asking"  # a fact of a session: the runs that wait for a person, separated by spaces
EXPIRED = "question-expired:"  # how the event ids of the mail begin that ends a question whose time is over


def waiting_runs(session: Session, run: str, *, waits: bool) -> Mapping[tuple[str, str], str | None]:
    """The fact that says which runs of the session wait for a person, when this one does or no longer does."""
    runs = [other for other in session.facts.get(ASKING, "").split() if other != run]
    return {(session.id, ASKING): " ".join([*runs, run] if waits else runs) or None}


def question_text(asks: Sequence[Ask]) -> str:
    """What the chat reads of the questions with which a turn ends."""
    if len(asks) == 1:
        return f"{asks[0].text}\n{_how_to_answer(asks[0], '')}".strip()
    return "\n".join(f"{n}. {ask.text} {_how_to_answer(ask, f' {n}')}".strip() for n, ask in enumerate(asks, 1))


def expired_ask(inbound: Inbound) -> str | None:
    """The question that this mail of the housekeeper's ends. Anybody may write such mail: the question's own time decides."""
    return inbound.event_id.removeprefix(EXPIRED) if inbound.event_id.startswith(EXPIRED) else None


def _how_to_answer(ask: Ask, number: str) -> str:
    if ask.call is not None and ask.choices:
        return f"(/approve{number} or /deny{number})"
    return f"({' / '.join(ask.choices)})" if ask.choices else ""

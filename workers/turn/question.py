"""A question as the chat reads it, and how a conversation remembers that one is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.agent.events import Ask
from shared.choices import Choice, ask_id
from shared.codec import message_id
from shared.messages import Inbound, Kind, OwnInbound, Reply, Session
from shared.store.asks import AskStore, OverdueAsk, end_asks
from shared.store.change import Also, Change
from shared.store.runs import end_run

ASKING = "asking"  # a fact of a session: the runs that wait for a person, separated by spaces
CLOSED = "closed"  # how a question ends whose conversation is over
EXPIRED = "question-expired"  # the event id of the mail that ends a question: this, the question, and which try it is


def waiting_runs(session: Session, *runs: str, wait: bool) -> Mapping[tuple[str, str], str | None]:
    """The fact that says which runs of the session wait for a person, when these do or no longer do."""
    others = [other for other in session.facts.get(ASKING, "").split() if other not in runs]
    return {(session.id, ASKING): " ".join([*others, *runs] if wait else others) or None}


async def with_questions_closed(change: Change, session: Session, session_key: str, asks: AskStore) -> Change:
    """The change of a commit that ends the session for this key: it also closes what was asked there and is open, and ends the
    runs that wait for it. Where other keys are in the session, their questions stay open: they go on in it."""
    if ASKING not in session.facts:
        return change
    asked = await asks.open(session_key)
    runs = tuple(dict.fromkeys(ask.run_id for ask in asked if ask.session_id == session.id))
    ended = [also for run in runs for also in close_run(run)]
    facts = {**change.facts, **waiting_runs(session, *runs, wait=False)}
    return replace(change, facts=facts, also=(*change.also, *ended))


def close_run(run: str) -> tuple[Also, ...]:
    """Statements of a commit: the run's conversation is over, so nobody can answer its questions, and it never goes on."""
    return (*end_run(run), *end_asks(run, CLOSED))


def question_text(asks: Sequence[Ask]) -> str:
    """What the chat reads of the questions with which a turn ends."""
    if len(asks) == 1:
        return f"{asks[0].text}\n{_how_to_answer(asks[0], '')}".strip()
    return "\n".join(f"{n}. {ask.text}\n{_how_to_answer(ask, f' {n}')}".strip() for n, ask in enumerate(asks, 1))


def question_reply(asks: Sequence[Ask], turn_id: str) -> Reply:
    """What the chat is told of the questions with which this turn ends: their text, and a button for each choice."""
    numbered = len(asks) > 1
    choices = [
        Choice(f"{place + 1}: {label}" if numbered else label, command)
        for place, ask in enumerate(asks)
        for label, command in _commands(ask, ask_id(turn_id, place))
    ]
    return Reply(question_text(asks), choices=tuple(choices))


def _commands(ask: Ask, id: str) -> list[tuple[str, str]]:
    """The words on each button of a question, and what it gives. A question without choices has none."""
    if is_yes_or_no(ask):
        return [("Approve", f"/approve {id}"), ("Deny", f"/deny {id}")]
    return [(choice, f"/answer {id} {n}") for n, choice in enumerate(ask.choices, 1)]


def is_yes_or_no(ask: Ask) -> bool:
    """Whether it asks for the approval of a tool call, with yes or no."""
    return ask.call is not None and bool(ask.choices)


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
    if is_yes_or_no(ask):
        return f"(/approve{number} or /deny{number})"
    choices = " / ".join(ask.choices)
    if number:  # plain words would not say which question they answer
        return f"(/answer{number} and one of: {choices})" if choices else f"(/answer{number} and your words)"
    return f"({choices})" if choices else ""

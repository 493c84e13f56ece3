"""Questions to people: how their answers take a run up.

| mail | what becomes of it |
|---|---|
| `/approve`, `/deny`, with a number where several questions are open | the answer to that question |
| "yes", "no", or the text of a choice, while one question is open | the same |
| any words, while a question without choices is open | the same |
| the housekeeper's, when the time of a question is over | an answer that says so |
| an answer that came after that time | the chat is told that the question has expired |
| `/new`, or the first after a time that ends the conversation | the questions of the conversation are closed, and their runs end |
| anything else, or of somebody else | an ordinary message: the question stays open |

A run is taken up when all its questions are answered. Until the commit of that turn the questions are open, so a crash
changes nothing: the next attempt hears the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.agent.turn import Said
from shared.clock import now_ms
from shared.messages import Source, State
from shared.permission import is_admin
from shared.store.asks import OpenAsk, keep_answer
from shared.store.change import Change, Ending
from workers.commands import CommandAnswer, GivenAnswer
from workers.turn.attempt import Attempt, TakenUp
from workers.turn.conclude import command_done, end_mail
from workers.turn.outcome import Conclusion
from workers.turn.question import CLOSED, close_run, expired_ask

YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved"})
NO = frozenset({"no", "n", "deny", "denied", "cancel"})
SETTLED = {
    "answered": "That question is settled already.",
    "expired": "That question has expired: nobody answered it in time.",
    CLOSED: "The conversation with that question is over. Nothing was run.",
}
LISTED_CHARACTERS = 200  # a question that is longer is listed by its first line
NOTHING_OPEN = "There is no open question here."
NOT_YOURS = "This question is for somebody else."


async def hear_answer(attempt: Attempt, given: GivenAnswer | None) -> Attempt | Conclusion | None:
    """What becomes of mail in a conversation that may have open questions. None: it answers none of them."""
    store, inbound = attempt.parts.pipe.store, attempt.mail.inbound
    asked = await store.asks.open(attempt.key)
    if (expired := expired_ask(inbound)) is not None:
        ask = next((ask for ask in asked if ask.id == expired), None)
        if ask is None:
            return end_mail(attempt, Ending(State.SUPERSEDED, "settled"))
        if ask.session_id != attempt.session.id:
            return end_mail(attempt, Ending(State.SUPERSEDED, "over"), change=Change(also=close_run(ask.run_id)))
        return await _answered(attempt, asked, ask, Said(is_expired=True, at=now_ms()))
    # Questions of a conversation that was left with /resume or /branch may be open. They are not in the way of those asked here.
    asked = [ask for ask in asked if ask.session_id == attempt.session.id] or asked
    if given is None:
        if (chosen := _plain(attempt, asked, inbound.text)) is None:
            return None
        if not _is_late(attempt, chosen[0]):
            return await _answered(attempt, asked, *chosen)
        return command_done(attempt, CommandAnswer(SETTLED["expired"])) if chosen[0].choices else None
    theirs = [ask for ask in asked if _may_answer(attempt, ask)] or asked  # others may have been asked meanwhile
    ask = _named(theirs, given.which)
    if ask is None:
        return command_done(attempt, CommandAnswer(await _which(attempt, theirs)))
    if not _may_answer(attempt, ask):
        return command_done(attempt, CommandAnswer(NOT_YOURS))
    if _is_late(attempt, ask):
        return command_done(attempt, CommandAnswer(SETTLED["expired"]))
    if given.is_yes and not ask.is_approval:
        return command_done(attempt, CommandAnswer(f"Please answer in your own words: {ask.text}"))
    said = Said(inbound.text, "yes" if given.is_yes else "no", attempt.owner() or "", now_ms())
    return await _answered(attempt, asked, ask, said)


def _plain(attempt: Attempt, asked: Sequence[OpenAsk], text: str) -> tuple[OpenAsk, Said] | None:
    """The question that plain words answer, where only one is open and it was put to whoever says them."""
    if len(asked) != 1 or not _may_answer(attempt, ask := asked[0]):
        return None
    words, by, now = text.strip().rstrip(".!").casefold(), attempt.owner() or "", now_ms()
    if ask.is_approval and ask.choices:
        choice = "yes" if words in YES else "no" if words in NO else None
    else:
        choice = next((choice for choice in ask.choices if choice.casefold() == words), None)
    if choice is None and ask.choices:
        return None
    return ask, Said(text, choice, by, now)


def _named(asked: Sequence[OpenAsk], which: str) -> OpenAsk | None:
    """The question that a number names: always one of those that they were asked last, by the number shown with it."""
    if not which:
        return asked[0] if len(asked) == 1 else None
    if not which.isdecimal() or len(which) > 4:
        return None
    return next((ask for ask in _latest(asked) if ask.number == int(which)), None)


def _latest(asked: Sequence[OpenAsk]) -> list[OpenAsk]:
    """Of the open questions, those of the run that asked last."""
    return [ask for ask in asked if ask.run_id == asked[-1].run_id]


def _listed(asks: Sequence[OpenAsk]) -> str:
    """The questions by their numbers. The chat has seen them whole; none is cut within the code that it shows."""
    return "\n".join(f"{ask.number}. {_beginning(ask.text)}" for ask in asks)


def _beginning(text: str) -> str:
    first, _, _ = text.partition("\n")
    return text if len(text) <= LISTED_CHARACTERS else f"{first[:LISTED_CHARACTERS]}…"


async def _which(attempt: Attempt, asked: Sequence[OpenAsk]) -> str:
    if not asked:
        ended = await attempt.parts.pipe.store.asks.last_ended(attempt.key)
        return SETTLED.get(ended or "", NOTHING_OPEN)
    return f"Which one? {_listed(_latest(asked))}"


def _may_answer(attempt: Attempt, ask: OpenAsk) -> bool:
    """Whoever was asked; where a setting says so, an admin too."""
    source, settings = attempt.mail.inbound.source, attempt.parts.pipe.settings
    if _person(source) == _person(ask.source):
        return True
    return settings.admins_may_approve and is_admin(settings, source)


def _is_late(attempt: Attempt, ask: OpenAsk) -> bool:
    """Whether the mail came after the question's time. It counts when it came, not how long it waited for its turn."""
    return ask.expires_at is not None and ask.expires_at <= attempt.mail.inbound.received_at


def _person(source: Source) -> tuple[str, str, str | None]:
    return source.platform, source.account, source.user_alt or source.user


async def _answered(attempt: Attempt, asked: Sequence[OpenAsk], ask: OpenAsk, said: Said) -> Attempt | Conclusion:
    """Take the run up, if all its questions are answered now."""
    run, session = ask.run_id, attempt.session
    if ask.session_id != session.id:
        return command_done(attempt, CommandAnswer(SETTLED[CLOSED], Change(also=close_run(run))))
    if still := [other for other in asked if other.run_id == run and other.id != ask.id]:
        if said.is_expired:  # nobody said anything: there is nothing to confirm
            return end_mail(attempt, Ending(State.SUPERSEDED, "noted"), change=Change(also=(keep_answer(ask, said),)))
        text = f"Noted. Still open: {_listed(still)}"
        return command_done(attempt, CommandAnswer(text, Change(also=(keep_answer(ask, said),))))
    answers = {**await attempt.parts.pipe.store.asks.answers(run), ask.name: said}
    ends_as = "expired" if said.is_expired else "answered"
    return replace(attempt, taken_up=TakenUp(run, answers, ends_as, keep_answer(ask, said), ask.source))

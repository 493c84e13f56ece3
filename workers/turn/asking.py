"""Questions to people: how their answers take a run up.

| mail | what becomes of it |
|---|---|
| `/approve`, `/deny`, with a number where several questions are open | the answer to that question |
| "yes", "no", or the text of a choice, while one question is open | the same |
| any words, while a question without choices is open | the same |
| the housekeeper's, when the time of a question is over | an answer that says so |
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
from shared.store.asks import OpenAsk, end_asks, keep_answer
from shared.store.change import Change, Ending
from shared.store.runs import end_run
from workers.commands import CommandAnswer, GivenAnswer
from workers.turn.attempt import Attempt, TakenUp
from workers.turn.conclude import command_done, end_mail
from workers.turn.outcome import Conclusion
from workers.turn.question import expired_ask

YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved"})
NO = frozenset({"no", "n", "deny", "denied", "cancel"})
SETTLED = {
    "answered": "That question is settled already.",
    "expired": "That question has expired: nobody answered it in time.",
    "closed": "That question is closed.",
}
NOTHING_OPEN = "There is no open question here."
NOT_YOURS = "This question is for somebody else."
OVER = "The conversation with that question is over. Nothing was run."


async def hear_answer(attempt: Attempt, given: GivenAnswer | None) -> Attempt | Conclusion | None:
    """What becomes of mail in a conversation that may have open questions. None: it answers none of them."""
    store, inbound = attempt.parts.pipe.store, attempt.mail.inbound
    asked = await store.asks.open(attempt.key)
    if (expired := expired_ask(inbound)) is not None:
        overdue = [ask for ask in asked if ask.id == expired and ask.expires_at and ask.expires_at <= now_ms()]
        if not overdue:
            return end_mail(attempt, Ending(State.SUPERSEDED, "settled"))
        return await _answered(attempt, asked, overdue[0], Said(is_expired=True, at=now_ms()))
    if given is None:
        chosen = _plain(attempt, asked, inbound.text)
        return await _answered(attempt, asked, *chosen) if chosen is not None else None
    ask = _named(asked, given.which)
    if ask is None:
        return command_done(attempt, CommandAnswer(await _which(attempt, asked)))
    if not _may_answer(attempt, ask):
        return command_done(attempt, CommandAnswer(NOT_YOURS))
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
    """The question that a number names: always one of those that the chat was shown last, by the number shown with it."""
    if not which:
        return asked[0] if len(asked) == 1 else None
    if not which.isdecimal() or len(which) > 4:
        return None
    return next((ask for ask in _latest(asked) if ask.number == int(which)), None)


def _latest(asked: Sequence[OpenAsk]) -> list[OpenAsk]:
    """Of the open questions, those of the run that asked last."""
    return [ask for ask in asked if ask.run_id == asked[-1].run_id]


def _listed(asks: Sequence[OpenAsk]) -> str:
    return " ".join(f"{ask.number}. {ask.text}" for ask in asks)


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


def _person(source: Source) -> tuple[str, str, str | None]:
    return source.platform, source.account, source.user_alt or source.user


async def _answered(attempt: Attempt, asked: Sequence[OpenAsk], ask: OpenAsk, said: Said) -> Attempt | Conclusion:
    """Take the run up, if all its questions are answered now."""
    run, session = ask.run_id, attempt.session
    if ask.session_id != session.id:
        change = Change(also=(*end_run(run), *end_asks(run, "closed")))
        return command_done(attempt, CommandAnswer(OVER, change))
    if still := [other for other in asked if other.run_id == run and other.id != ask.id]:
        text = f"Noted. Still open: {_listed(still)}"
        return command_done(attempt, CommandAnswer(text, Change(also=(keep_answer(ask, said),))))
    answers = {**await attempt.parts.pipe.store.asks.answers(run), ask.name: said}
    return replace(
        attempt, taken_up=TakenUp(run, answers, "expired" if said.is_expired else "answered", keep_answer(ask, said))
    )

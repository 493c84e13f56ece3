"""Questions to people: how their answers take a run up.

| mail | what becomes of it |
|---|---|
| `/approve`, `/deny`, `/answer`, with a number where several questions are open | the answer to that question |
| a pressed button: the same commands, with the id of the question that it stands below | the same |
| "yes", "no", or the text of a choice, while one question is open | the same |
| any words, while a question without choices is open | the same |
| the housekeeper's, when the time of a question is over | an answer that says so |
| an answer that came after that time | the chat is told that the question has expired |
| words or a command that came before the question was asked, and waited for their turn | not an answer to it: nobody had seen it |
| a yes to a question of which a message was given up, or was not sent yet | the chat is told so, and the question stays open |
| `/new`, or the first after a time that ends the conversation | the questions of the conversation are closed, and their runs end |
| anything else, or of somebody else | an ordinary message: the question stays open |

A run is taken up when all its questions are answered. Until the commit of that turn the questions are open, so a crash
changes nothing: the next attempt hears the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shared.agent.turn import Said
from shared.choices import is_ask_id, turn_of
from shared.clock import now_ms
from shared.messages import Source, State
from shared.permission import is_admin
from shared.platforms import FOR_PROGRAMS, local
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
NOT_HERE = "That question was asked in another conversation. Please answer it there."
UNKNOWN = "I do not know that question any more."
TOO_EARLY = "You said that before I asked. Please look at the question above, and answer it."
PARTLY_LOST = (
    "Some of this question did not get through to this chat, so it cannot be approved. Say /deny, and ask me again."
)
NOT_THERE_YET = (
    "This question is not in this chat yet, or not all of it, so it cannot be approved. Please read it first."
)
READ_UNSENT = (*FOR_PROGRAMS, local.NAME)  # read answers elsewhere too, or from the database
NO_SUCH_ANSWER = "Please answer with one of these: {choices}"


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
    if given is not None and is_ask_id(given.which):
        ask = next((ask for ask in asked if ask.id == given.which), None)
        return await (_settled(attempt, given.which) if ask is None else _given(attempt, asked, ask, given))
    # Questions of a conversation that was left with /resume or /branch may be open. They are not in the way of those asked here.
    asked = [ask for ask in asked if ask.session_id == attempt.session.id] or asked
    seen = [ask for ask in asked if ask.asked_at <= inbound.received_at]
    if given is None:
        if (chosen := _plain(attempt, seen, attempt.inbound.text)) is None:  # all pieces of a long text
            return None
        if not _is_late(attempt, chosen[0]):
            return await _answered(attempt, asked, *chosen)
        return command_done(attempt, CommandAnswer(SETTLED["expired"])) if chosen[0].choices else None
    theirs = [ask for ask in asked if _may_answer(attempt, ask)]  # others may have been asked meanwhile
    answerable = [ask for ask in theirs or asked if ask in seen]
    if theirs and not answerable:
        return command_done(attempt, CommandAnswer(TOO_EARLY))
    ask = _named(answerable, given.which)
    if ask is None:
        return command_done(attempt, CommandAnswer(await _which(attempt, answerable)))
    return await _given(attempt, asked, ask, given)


async def _given(attempt: Attempt, asked: Sequence[OpenAsk], ask: OpenAsk, given: GivenAnswer) -> Attempt | Conclusion:
    """What becomes of a command, or of a pressed button, that answers just this question."""
    if not _may_answer(attempt, ask):
        return command_done(attempt, CommandAnswer(NOT_YOURS))
    if _is_late(attempt, ask):
        return command_done(attempt, CommandAnswer(SETTLED["expired"]))
    if given.is_yes and not ask.is_approval:
        return command_done(attempt, CommandAnswer(f"Please answer in your own words: {ask.text}"))
    said = _said(attempt, ask, given)
    if said is None:
        return command_done(attempt, CommandAnswer(NO_SUCH_ANSWER.format(choices=" / ".join(ask.choices))))
    is_button = is_ask_id(given.which)
    if is_button:  # what the transcript shows, and the model reads: nobody typed the id
        attempt = replace(attempt, inbound=replace(attempt.inbound, text=said.text))
    return await _answered(attempt, asked, ask, said, is_button=is_button)


def _said(attempt: Attempt, ask: OpenAsk, given: GivenAnswer) -> Said | None:
    """The answer in a command or of a button, which gives a choice by its number alone. None: it is none of the choices."""
    text, by, now, is_button = attempt.mail.inbound.text, attempt.owner() or "", now_ms(), is_ask_id(given.which)
    if given.is_yes is not None:
        return Said(text.partition(" ")[0] if is_button else text, "yes" if given.is_yes else "no", by, now)
    choice = (None if is_button else _choice(ask, given.words)) or _numbered(ask, given.words)
    if choice is None and (ask.choices or is_button):
        return None
    return Said(choice or given.words, choice, by, now)


async def _settled(attempt: Attempt, id: str) -> Conclusion:
    """Tell whoever answers a question by its id why they cannot: it is not open in this conversation. If it is over, its
    buttons are taken away: a crash, or a message that was still on its way, may have left them."""
    found = await attempt.parts.pipe.store.asks.find(id)
    if found is None:
        return command_done(attempt, CommandAnswer(UNKNOWN))
    if not _is_for(attempt, found.source):
        return command_done(attempt, CommandAnswer(NOT_YOURS))
    if found.state == "open":
        return command_done(attempt, CommandAnswer(NOT_HERE))
    told = command_done(attempt, CommandAnswer(SETTLED.get(found.state, NOTHING_OPEN)))
    return replace(told, afterwards=partial(attempt.parts.button_removal.begin, id))


def _plain(attempt: Attempt, asked: Sequence[OpenAsk], text: str) -> tuple[OpenAsk, Said] | None:
    """The question that plain words answer, where only one is open and it was put to whoever says them."""
    if len(asked) != 1 or not _may_answer(attempt, ask := asked[0]):
        return None
    choice = _choice(ask, text)
    if choice is None and ask.choices:
        return None
    return ask, Said(text, choice, attempt.owner() or "", now_ms())


def _choice(ask: OpenAsk, text: str) -> str | None:
    """The choice of a question that words name; None: none of them."""
    if ask.is_approval and ask.choices:
        words = _bare(text)
        return "yes" if words in YES else "no" if words in NO else None
    exact = text.strip().casefold()
    same = [choice for choice in ask.choices if choice.strip().casefold() == exact]
    alike = [choice for choice in ask.choices if _bare(choice) == _bare(text)]
    return next(iter(same or alike), None)


def _bare(text: str) -> str:
    """The words without what people leave out, or add, when they type them."""
    return text.strip().rstrip(".!").casefold()


def _numbered(ask: OpenAsk, number: str) -> str | None:
    """The choice of a question that a number names, counted from 1; None: none of them."""
    place = int(number) if number.isdecimal() and len(number) < 4 else 0
    return ask.choices[place - 1] if 0 < place <= len(ask.choices) else None


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
    return _is_for(attempt, ask.source)


def _is_for(attempt: Attempt, asked: Source) -> bool:
    """Whether it is for the sender of the mail: whoever was asked; where a setting says so, an admin too."""
    source, settings = attempt.mail.inbound.source, attempt.parts.pipe.settings
    if _person(source) == _person(asked):
        return True
    return settings.admins_may_approve and is_admin(settings, source)


def _is_late(attempt: Attempt, ask: OpenAsk) -> bool:
    """Whether the mail came after the question's time. It counts when it came, not how long it waited for its turn."""
    return ask.expires_at is not None and ask.expires_at <= attempt.mail.inbound.received_at


def _person(source: Source) -> tuple[str, str, str | None]:
    return source.platform, source.account, source.user_alt or source.user


async def _why_unseen(attempt: Attempt, ask: OpenAsk, is_button: bool) -> str:
    """Why whoever says yes cannot have seen all of the question; empty: they can. People approve what they were shown whole. A
    button stands below the last message, which is there though its receipt may have been lost."""
    if attempt.mail.inbound.source.platform in READ_UNSENT:
        return ""
    states = {part["state"] for part in await attempt.parts.pipe.store.outbox.of_turn(turn_of(ask.id))}
    if "buried" in states:
        return PARTLY_LOST
    return NOT_THERE_YET if "pending" in states and not is_button else ""


async def _answered(
    attempt: Attempt, asked: Sequence[OpenAsk], ask: OpenAsk, said: Said, *, is_button: bool = False
) -> Attempt | Conclusion:
    """Take the run up, if all its questions are answered now."""
    run, session = ask.run_id, attempt.session
    if ask.session_id != session.id:
        return command_done(attempt, CommandAnswer(SETTLED[CLOSED], Change(also=close_run(run))))
    if ask.is_approval and said.choice == "yes" and (why := await _why_unseen(attempt, ask, is_button)):
        return command_done(attempt, CommandAnswer(why))
    if still := [other for other in asked if other.run_id == run and other.id != ask.id]:
        if said.is_expired:  # nobody said anything: there is nothing to confirm
            return end_mail(attempt, Ending(State.SUPERSEDED, "noted"), change=Change(also=(keep_answer(ask, said),)))
        text = f"Noted. Still open: {_listed(still)}"
        noted = command_done(attempt, CommandAnswer(text, Change(also=(keep_answer(ask, said),))))
        still_open = [other.id for other in still]
        return replace(noted, afterwards=partial(attempt.parts.button_removal.begin, ask.id, still_open))
    answers = {**await attempt.parts.pipe.store.asks.answers(run), ask.name: said}
    ends_as = "expired" if said.is_expired else "answered"
    return replace(attempt, taken_up=TakenUp(run, answers, ends_as, keep_answer(ask, said), ask.source, ask.id))

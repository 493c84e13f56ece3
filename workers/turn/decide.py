"""What becomes of a message before any agent is asked: whether it gets an attempt, and whether that runs the agent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shared import log
from shared.clock import now_ms
from shared.codec import storable
from shared.errors import AlreadyDone, Superseded, Unavailable
from shared.messages import Kind, Reply, State
from shared.pieces import may_go_on
from shared.stages import correlate
from shared.store.change import Ending
from shared.value import changed
from workers import commands
from workers.turn.album import as_one, rest_of_album
from workers.turn.asking import hear_answer
from workers.turn.attempt import Attempt, HeldKey
from workers.turn.background import open_task
from workers.turn.busy.collect import collected, collects
from workers.turn.conclude import announce, bury, command_done, commit_change, end_unfinished
from workers.turn.counting import GivenUp, begin_attempt
from workers.turn.cut_short import stopped_before
from workers.turn.editing import taken_back
from workers.turn.lifetime import reset
from workers.turn.open import Opened
from workers.turn.outcome import REOPEN, Conclusion, Lost, Reopen
from workers.turn.question import ASKING, expired_ask, with_questions_closed
from workers.turn.run import knowing_steps
from workers.turn.waiting import observe_wait

BEYOND_BUDGET = "(This could not be finished: the budget was used up.)"


async def begin(held: HeldKey, opened: Opened) -> Attempt | Conclusion | Lost:
    """Count an attempt at the mail. It gets none if it cannot be read, if too many workers died of it, or if the user
    stopped it."""
    lease, mail = held.lease, opened.mail
    correlate(mail.inbound.id)
    if opened.unreadable is not None:
        return bury(_attempt(held, opened, 0), "malformed", opened.unreadable)
    max_attempts = held.parts.pipe.settings.max_attempts
    begun = await begin_attempt(
        lease,
        mail.seq,
        journaled=opened.attempts,
        restore_payload=opened.restore_payload,
        max_attempts=max_attempts,
    )
    if isinstance(begun, Lost):
        return begun
    if isinstance(begun, GivenUp):
        attempt = await knowing_steps(_attempt(held, opened, begun.attempts))
        return bury(attempt, "crashed", f"{begun.attempts} attempts came to no end")
    if lease.drop_until_ms and mail.inbound.received_at <= lease.drop_until_ms and mail.inbound.kind.is_dropped_by_stop:
        return await stopped_before(_attempt(held, opened, 0))
    attempt = _attempt(held, opened, begun.number, isolated=begun.isolated)
    observe_wait(attempt, held.turns)
    return attempt


def _attempt(held: HeldKey, opened: Opened, number: int, *, isolated: bool = False) -> Attempt:
    return Attempt(
        held.lease,
        held.parts,
        opened.session,
        opened.mail,
        opened.mail.inbound,
        number,
        held.claimed_at,
        now_ms(),
        isolated,
        opened.outage_ms,
        may_have_run=opened.may_have_run,
        may_have_draft=opened.may_have_draft,
    )


async def decide(attempt: Attempt) -> Attempt | Conclusion | Reopen:
    """Find out on which words and rows the agent is to run, or how the mail ends without it.

    A session that was over is ended here by a commit of its own, and the mail is opened again in the next one.
    """
    lifetime, inbound = attempt.parts.lifetime, attempt.inbound
    if (reason := lifetime.over(attempt.session, inbound)) is not None:
        ended = reset(attempt.session, reason)
        ended = await with_questions_closed(ended, attempt.session, attempt.key, attempt.parts.pipe.store.asks)
        await commit_change(attempt, ended, State.EXPIRED)
        log.get().info("session ended", key=attempt.key, session=attempt.session.id, reason=reason)
        return REOPEN
    if seed := await lifetime.seed(attempt.session, attempt.key, inbound.source):
        attempt = replace(attempt, seed=seed)
    if inbound.kind in (Kind.ANNOUNCEMENT, Kind.CHECK):
        return announce(attempt)
    if inbound.kind is Kind.TASK:
        begun = await open_task(attempt)
        if begun is None:
            return await stopped_before(attempt)
        attempt = begun
    if may_go_on(inbound):
        album = await rest_of_album(attempt.lease, attempt.mail, attempt.parts.pipe.store.journal)
        attempt = replace(attempt, album=album, inbound=as_one(inbound, album))
    elif collects(attempt.parts.busy_modes, attempt.session, inbound, attempt.lease.busy_mode):
        more = await collected(attempt.mail, attempt.session, attempt.lease, attempt.parts.pipe.store.journal)
        attempt = replace(attempt, album=more, inbound=as_one(inbound, more, between="\n\n"))
    step = await _heard(attempt)
    if isinstance(step, Conclusion):
        return step
    attempt = step
    if attempt.session.owner is None:  # the turn and its commit both ask for it: find it out once
        attempt = changed(attempt, session=changed(attempt.session, owner=attempt.owner()))
    budgets = attempt.parts.budgets
    if budgets is not None and (refusal := await budgets.refusal(attempt.owner())) is not None:
        if attempt.taken_up is not None and inbound.kind is Kind.MESSAGE:  # the question stays open for another day
            attempt = replace(attempt, taken_up=None)
        ending, attempt = Ending(State.REJECTED, "budget"), await knowing_steps(attempt)
        return end_unfinished(attempt, ending, BEYOND_BUDGET, (Reply(refusal),))
    return attempt


async def _heard(attempt: Attempt) -> Attempt | Conclusion:
    """Carry out a command, take back what a front end changed, or take up the run whose question the mail answers. Anything
    else is for the agent."""
    inbound = attempt.inbound
    if expired_ask(inbound) is not None:
        return await hear_answer(attempt, None) or attempt
    if not inbound.kind.is_said:  # nobody said its words: they command nothing and answer no question
        return attempt
    if not inbound.is_stateless and (command := commands.parse(inbound.text)) is not None:
        return await _obey(attempt, *command)
    if inbound.terms is not None and (again := await taken_back(attempt)) is not None:
        return replace(attempt, again=again)
    if ASKING in attempt.session.facts:
        return await hear_answer(attempt, None) or attempt
    return attempt


async def _obey(attempt: Attempt, name: str, args: str) -> Attempt | Conclusion:
    """Carry out a command. It is its key's turn: it waits its time and is committed like any other.

    One that fails is answered at once: a second attempt would end the same way, and keep the messages behind it waiting.
    """
    parts, session, key = attempt.parts, attempt.session, attempt.key
    try:
        call = commands.CommandCall(
            name, storable(args), attempt.mail.inbound, key, session, parts.pipe, parts.side_model, parts.budgets
        )
        done = await commands.run(call)
    except (Superseded, AlreadyDone, Unavailable):
        raise
    except Exception:
        return _sorry(attempt, name)
    if isinstance(done, commands.GivenAnswer):
        return await hear_answer(attempt, done) or attempt
    if isinstance(done, commands.Instead):
        return replace(attempt, inbound=replace(attempt.inbound, text=done.text))
    if isinstance(done, commands.CommandAnswer):
        return replace(command_done(attempt, done), otherwise=partial(_sorry, attempt, name))
    said = replace(attempt.inbound, text=done.text, media=done.media or attempt.inbound.media)
    return replace(attempt, inbound=said, again=done)


def _sorry(attempt: Attempt, name: str) -> Conclusion:
    """To be called where an error was caught."""
    log.get().exception("command failed", key=attempt.key, command=name)
    return command_done(attempt, commands.sorry(name))

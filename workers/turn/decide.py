"""What becomes of a message before any agent is asked: whether it gets an attempt, and whether that runs the agent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shared import log
from shared.clock import now_ms
from shared.codec import storable
from shared.errors import AlreadyDone, Superseded, Unavailable
from shared.lane_key import CONTROL, conversation_of
from shared.messages import State
from shared.stages import correlate
from shared.store.change import Ending
from workers import commands
from workers.turn.album import as_one, rest_of_album
from workers.turn.attempt import Attempt, HeldKey
from workers.turn.conclude import bury, command_done, commit_change, end_mail
from workers.turn.lifetime import reset
from workers.turn.open import Opened, load_session
from workers.turn.outcome import LOST, REOPEN, Conclusion, Lost, Reopen

CRASH_FACTOR = 4  # give up after 4 × MAX_ATTEMPTS attempts whose worker died


async def begin(held: HeldKey, opened: Opened) -> Attempt | Conclusion | Lost:
    """Count an attempt at the mail. It gets none if it cannot be read, if too many workers died of it, or if the user
    stopped it."""
    lease, mail = held.lease, opened.mail
    correlate(mail.inbound.id)
    if opened.unreadable is not None:
        return bury(_attempt(held, opened, 0), "malformed", opened.unreadable)
    if opened.restore_payload is not None:
        # Redis counts attempts for the mailbox's first entry only, so put the missing message back first.
        await lease.lane.put(lease.key, mail.seq, opened.restore_payload)
    begun, failed = lease.attempts_before(mail.seq)
    before = max(begun, opened.attempts)
    if before >= held.parts.pipe.settings.max_attempts * CRASH_FACTOR:
        return bury(_attempt(held, opened, before), "crashed", f"{before} attempts came to no end")
    if not await lease.begin(mail.seq):
        lease.lose()
        return LOST
    if lease.drop_until_ms and mail.inbound.received_at <= lease.drop_until_ms:
        return end_mail(_attempt(held, opened, 0), Ending(State.SUPERSEDED, "stopped"))
    # An attempt whose end nobody saw may have killed its worker: run this one in a process of its own.
    return _attempt(held, opened, before + 1, isolated=begun > failed)


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
    )


async def decide(attempt: Attempt) -> Attempt | Conclusion | Reopen:
    """Find out on which words and rows the agent is to run, or how the mail ends without it.

    A session that was over is ended here by a commit of its own, and the mail is opened again in the next one.
    """
    lifetime, inbound, is_control = attempt.parts.lifetime, attempt.inbound, attempt.lease.lane.name == CONTROL
    if not is_control:
        if (reason := lifetime.over(attempt.session, inbound)) is not None:
            await commit_change(attempt, reset(attempt.session, reason), State.EXPIRED)
            log.get().info("session ended", key=attempt.key, session=attempt.session.id, reason=reason)
            return REOPEN
        if seed := await lifetime.seed(attempt.session, attempt.key, inbound.source):
            attempt = replace(attempt, seed=seed)
    if inbound.album is not None:
        album = await rest_of_album(attempt.lease, attempt.mail, attempt.parts.pipe.store.journal)
        attempt = replace(attempt, album=album, inbound=as_one(inbound, album))
    if (command := commands.parse(inbound.text)) is not None:
        done = await _obey(attempt, *command)
        if isinstance(done, Conclusion):
            return done
        attempt = done
    elif is_control:  # no agent runs under a control key, whoever put this into its mailbox
        return bury(attempt, "malformed", "no control message")
    if attempt.session.owner is None:  # the turn and its commit both ask for it: find it out once
        attempt = replace(attempt, session=replace(attempt.session, owner=attempt.owner()))
    budgets = attempt.parts.budgets
    if budgets is not None and (refusal := await budgets.refusal(attempt.owner())) is not None:
        return end_mail(attempt, Ending(State.REJECTED, "budget"), notice=refusal)
    return attempt


async def _obey(attempt: Attempt, name: str, args: str) -> Attempt | Conclusion:
    """Carry out a command. It is its key's turn: it waits its time and is committed like any other.

    One that fails is answered at once: a second attempt would end the same way, and keep the messages behind it waiting.
    """
    parts, session, key = attempt.parts, attempt.session, conversation_of(attempt.key)
    try:
        if key != attempt.key:  # a control message is about the conversation, and only numbered apart from it
            session = await load_session(key, parts.pipe.store)
        call = commands.Call(
            name, storable(args), attempt.mail.inbound, key, session, parts.pipe, parts.side_model, parts.budgets
        )
        done = await commands.run(call)
    except (Superseded, AlreadyDone, Unavailable):
        raise
    except Exception:
        return _sorry(attempt, name)
    if isinstance(done, commands.Answer):
        return replace(command_done(attempt, done), otherwise=partial(_sorry, attempt, name))
    return replace(attempt, inbound=replace(attempt.inbound, text=done.text), again=done)


def _sorry(attempt: Attempt, name: str) -> Conclusion:
    """To be called where an error was caught."""
    log.get().exception("command failed", key=attempt.key, command=name)
    return command_done(attempt, commands.Answer(f"Sorry, /{name} did not work. Nothing was changed."))

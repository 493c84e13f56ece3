"""Step 8: how mail ends. `conclude`, `command_done`, `end_mail` and `bury` say what one commit is to write; `commit` writes it.

Only the commit decides: its compare-and-set succeeds once, and whoever loses leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shared import log, metrics
from shared.agent.turn import Result
from shared.clock import now_ms
from shared.context import marks
from shared.errors import AlreadyDone, Superseded, Unavailable
from shared.messages import Entry, Reply, State
from shared.session_key import SessionKey
from shared.stages import stage
from shared.store.change import ANSWERED, NO_CHANGE, Change, Commit, Committed, Ending, Proof
from shared.store.usage import Whose, has_usage, turns_usage
from workers.commands import Answer
from workers.delivery.parts import in_parts
from workers.side.budget import day_at
from workers.turn.attempt import Attempt
from workers.turn.lifetime import without_reset_facts
from workers.turn.outcome import Conclusion, Done

if TYPE_CHECKING:
    from workers.turn.prepare import Prepared

NOTICE = "Sorry, I could not process your last message. It has been set aside for a person to look at."
RETRY_SECONDS = 0.5  # between tries to commit while the database is away
COUNTED_AS = {State.SUPERSEDED: "stopped", State.REJECTED: "rejected", State.DEAD: "dead"}


def conclude(prepared: Prepared, result: Result) -> Conclusion:
    """The agent has answered: its rows and replies, what they cost, and a title where one costs nothing."""
    attempt, entries, titles = prepared.attempt, result.entries, prepared.attempt.parts.titles
    session, said = attempt.session, marks.user_row(attempt.inbound)
    change = attempt.again.change if attempt.again is not None else NO_CHANGE
    if prepared.facts:
        change = replace(change, facts={**change.facts, **prepared.facts})
    if has_usage(entries):
        day = day_at(now_ms(), attempt.parts.pipe.settings)
        change = replace(change, also=(*change.also, *turns_usage(entries, _whose(attempt), day)))
    if titles is not None and session.version == 0 and (title := titles.with_commit(session, attempt.inbound)):
        change = replace(change, title=title)
    afterwards = None
    if titles is not None and attempt.again is None and change.title is None:
        last = next((entry for entry in reversed(entries) if entry.role == "assistant"), None)
        afterwards = partial(titles.after, session, partial(_whose, attempt), said, last)
    replies = (*map(Reply, prepared.opening_notices), *result.replies, *map(Reply, attempt.closing_notices))
    change = without_reset_facts(session, change)
    written = _commit_of(attempt, prepared.proof, ANSWERED, (said, *entries), replies, change)
    return Conclusion(attempt, written, "answered", afterwards=afterwards)


def command_done(attempt: Attempt, answer: Answer) -> Conclusion:
    """A command is done: what it says, and what it changes."""
    said = marks.command_row(marks.user_row(attempt.mail.inbound))
    entries = (said, marks.command_row(Entry("assistant", answer.text)))
    written = _commit_of(attempt, attempt.proof(), ANSWERED, entries, (Reply(answer.text),), answer.change)
    return Conclusion(attempt, written, "command")


def end_mail(attempt: Attempt, ending: Ending, notice: str = "", entries: Sequence[Entry] = ()) -> Conclusion:
    """End the mail without an answer: with this state, these rows, and what the chat is told, if anything."""
    replies = (Reply(notice),) if notice else ()
    written = _commit_of(attempt, attempt.proof(), ending, entries, replies, NO_CHANGE)
    return Conclusion(attempt, written, COUNTED_AS[ending.state])


def bury(attempt: Attempt, reason: str, detail: str, notice: str = NOTICE) -> Conclusion:
    """Make the message a dead letter and tell the chat, once: both by the one commit."""
    return end_mail(attempt, Ending(State.DEAD, reason, detail), notice)


async def commit(conclusion: Conclusion) -> Done:
    """End the mail, once: Superseded or AlreadyDone if another did, and then nothing of this is written.

    Waits for a database that is away for as long as the key is ours: the agent's work is not thrown away.
    """
    try:
        committed = await _keep(conclusion)
    except (Superseded, AlreadyDone, Unavailable):
        raise
    except Exception:
        if conclusion.otherwise is None:
            raise
        conclusion = conclusion.otherwise()
        committed = await _keep(conclusion)
    _report(conclusion)
    return Done(tuple([mail.seq for mail in conclusion.commit.mail]), committed)


async def commit_change(attempt: Attempt, change: Change, state: State) -> None:
    """Change the session between two turns, by the same compare-and-set. No mail ends by this."""
    proof = replace(attempt.proof(), attempts=0)
    await attempt.parts.pipe.store.commit(
        Commit(attempt.session, attempt.key, proof, ending=Ending(state), change=change)
    )


async def _keep(conclusion: Conclusion) -> Committed:
    lease, store = conclusion.attempt.lease, conclusion.attempt.parts.pipe.store
    with stage("commit"):
        while True:
            try:
                return await store.commit(conclusion.commit)
            except Unavailable as error:
                if lease.lost:
                    raise
                log.get().warning("commit waits for the database", key=lease.key, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


def _report(conclusion: Conclusion) -> None:
    """Count and log what was committed."""
    commit = conclusion.commit
    key, ending, proof = commit.session_key, commit.ending, commit.proof
    metrics.ENDED[conclusion.counted_as].inc()
    match conclusion.counted_as:
        case "answered":
            ms = now_ms() - proof.started_at
            log.get().info("answered", key=key, turn=proof.turn_id, attempt=proof.attempts, ms=ms)
        case "stopped":
            log.get().info("stopped", key=key, message=commit.mail[0].inbound.id)
        case "rejected":
            log.get().info("refused", key=key, reason=ending.reason)
        case "dead":
            metrics.DEAD_LETTER.labels(ending.reason).inc()
            log.get().error("dead letter", key=key, reason=ending.reason, attempts=proof.attempts)
    if conclusion.afterwards is not None:
        conclusion.afterwards()


def _commit_of(
    attempt: Attempt,
    proof: Proof,
    ending: Ending,
    entries: Sequence[Entry],
    replies: Sequence[Reply],
    change: Change,
) -> Commit:
    mail, entries = (attempt.mail, *attempt.album), (*attempt.seed, *entries)
    parts = in_parts(attempt.mail.inbound.source.platform, replies)
    return Commit(attempt.session, attempt.key, proof, mail, entries, parts, ending, change)


def _whose(attempt: Attempt) -> Whose:
    return Whose(attempt.session.id, attempt.owner() or "", SessionKey.parse(attempt.key).agent)

"""Step 8: how mail ends. `conclude`, `command_done`, `end_mail` and `bury` say what one commit is to write; `commit` writes it.

Only the commit decides: its compare-and-set succeeds once, and whoever loses leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from shared import log, metrics
from shared.agent.turn import Result
from shared.clock import now_ms
from shared.context import marks
from shared.dead_reasons import MessageReason
from shared.errors import AlreadyDone, Superseded, Unavailable
from shared.failpoints import reach
from shared.lane import Lease
from shared.messages import Entry, Kind, Reply, State
from shared.schedules.schedule import is_unattended
from shared.session_key import SessionKey
from shared.stages import stage
from shared.store.asks import end_asks, park
from shared.store.change import ANSWERED, NO_CHANGE, Change, Commit, Committed, Ending, Proof
from shared.store.commit_rows import in_line
from shared.store.drafts import draft_id
from shared.store.runs import end_run
from shared.store.stateless import to_be_forgotten
from shared.store.usage import Whose, has_usage, turns_usage
from workers.commands import CommandAnswer
from workers.delivery.parts import in_parts
from workers.side.budget import day_at
from workers.turn.attempt import Attempt
from workers.turn.lifetime import without_reset_facts
from workers.turn.open import MERGED_AHEAD
from workers.turn.outcome import Conclusion, Kept
from workers.turn.question import question_reply, question_text, waiting_runs

if TYPE_CHECKING:
    from workers.turn.run import Prepared

Written = TypeVar("Written")
NOTICE = "Sorry, I could not process your last message. It has been set aside for a person to look at."
NOT_RUN = "A scheduled run failed. It has been set aside for a person to look at."
NOT_GONE_ON = "Nobody answered my question in time, and going on without an answer failed. A person has to look at it."
UNFINISHED = "(This could not be finished, and nobody answered it.)"  # stands in the transcript where the answer would
GOT_NO_FURTHER = "(What came after this answer could not be finished.)"
NOBODY_TO_ASK = "This needs an answer from a person, and a request without a conversation cannot wait for one."
NOBODY_BESIDE = "This cannot be done in the background, because somebody has to answer first:"
RETRY_SECONDS = 0.5  # between tries to commit while the database is away
COUNTED_AS = {State.SUPERSEDED: "stopped", State.REJECTED: "rejected", State.DEAD: "dead"}


def conclude(prepared: Prepared, result: Result) -> Conclusion:
    """The agent has answered: its rows and replies, what they cost, and a title where one costs nothing. Or it asks."""
    attempt, kind = prepared.attempt, prepared.attempt.inbound.kind
    if result.asks and attempt.inbound.is_stateless:
        return _nobody_to_ask(attempt, result)
    if result.asks and kind is not Kind.TASK and not is_unattended(attempt.mail.inbound):
        return _parked(prepared, result)
    used = result
    if result.asks:  # nobody could answer: the question is the result
        text = f"{NOBODY_BESIDE} {question_text(result.asks)}"
        result = replace(result, entries=(Entry("assistant", text),), replies=(Reply(text),), asks=())
    attempt = attempt.with_taken(result.took)
    titles = attempt.parts.titles if not attempt.inbound.is_stateless and kind is not Kind.TASK else None
    entries = attempt.steps.marked(result.entries) if attempt.steps is not None else result.entries
    session, said = attempt.session, marks.user_row(attempt.inbound)
    change = attempt.again.change if attempt.again is not None else NO_CHANGE
    if prepared.facts:
        change = replace(change, facts={**change.facts, **prepared.facts})
    change = with_usage(attempt, used, change)
    if titles is not None and (title := titles.with_commit(session, attempt.inbound)):
        change = replace(change, title=title)
    afterwards = None
    if titles is not None and attempt.again is None and change.title is None:
        last = next((entry for entry in reversed(entries) if entry.role == "assistant"), None)
        afterwards = partial(titles.after, session, partial(whose, attempt), said, last)
    answer = _in_place_of_a_draft(prepared, result.replies)
    replies = (*map(Reply, prepared.opening_notices), *answer, *map(Reply, attempt.closing_notices))
    change = _with_run_ended(attempt, without_reset_facts(session, change))
    written = _commit_of(attempt, prepared.proof, ANSWERED, (said, *entries), replies, change)
    return Conclusion(attempt, written, "answered", afterwards=afterwards)


def _parked(prepared: Prepared, result: Result) -> Conclusion:
    """The agent asks somebody: the mail is answered by the question, and the run waits with its steps. What they cost is
    counted now. What the agent took in ends now, and answers that it had finished are kept now: nobody may ever answer."""
    attempt = prepared.attempt.with_taken(result.took)
    change = attempt.again.change if attempt.again is not None else NO_CHANGE
    facts = {**change.facts, **prepared.facts, **waiting_runs(attempt.session, attempt.run_id, wait=True)}
    asker = attempt.taken_up.asker if attempt.taken_up is not None else attempt.mail.inbound.asker
    steps = attempt.steps
    counted = steps.last if steps is not None else 0
    parked = park(attempt.run_id, attempt.mail.inbound.id, asker, result.asks, counted)
    if attempt.taken_up is not None:
        parked = (attempt.taken_up.kept, *parked)
    change = with_usage(attempt, result, replace(change, facts=facts, also=(*change.also, *parked)))
    question = question_reply(result.asks, prepared.proof.turn_id)
    said = [
        row
        for row in result.entries
        if (row.role == "user" and row.inbound_id in result.took) or (steps is not None and row in steps.answers)
    ]
    entries = (marks.user_row(attempt.inbound), *said, Entry("assistant", question.text))
    answer = _in_place_of_a_draft(prepared, (*result.replies, question))
    replies = (*map(Reply, prepared.opening_notices), *answer)
    change = without_reset_facts(attempt.session, change)
    reach("ask.before_park")  # behind the commit it is one as any other: commit.after
    return Conclusion(attempt, _commit_of(attempt, prepared.proof, ANSWERED, entries, replies, change), "answered")


def _nobody_to_ask(attempt: Attempt, result: Result) -> Conclusion:
    """The agent asks somebody in a request without a conversation: nobody could answer, and nothing of it may be kept."""
    change = with_usage(attempt, result, NO_CHANGE)
    return end_mail(attempt, Ending(State.REJECTED, "asks"), (Reply(NOBODY_TO_ASK),), change=change)


def _with_run_ended(attempt: Attempt, change: Change) -> Change:
    """The change of a commit after which nothing of the mail's run is left."""
    if not attempt.has_run:
        return change
    also = (*change.also, *end_run(attempt.run_id))
    if (taken_up := attempt.taken_up) is None:
        return replace(change, also=also)
    facts = {**change.facts, **waiting_runs(attempt.session, attempt.run_id, wait=False)}
    return replace(change, facts=facts, also=(*also, *end_asks(attempt.run_id, taken_up.ends_as)))


def command_done(attempt: Attempt, answer: CommandAnswer) -> Conclusion:
    """A command is done: what it says, if anything, and what it changes."""
    entries = [marks.command_row(marks.user_row(attempt.mail.inbound))]
    if answer.text:
        entries.append(marks.command_row(Entry("assistant", answer.text)))
    change = _with_run_ended(attempt, answer.change)
    replies = (Reply(answer.text),) if answer.text else ()
    written = _commit_of(attempt, attempt.proof(), ANSWERED, entries, replies, change)
    return Conclusion(attempt, written, "command")


def announce(attempt: Attempt) -> Conclusion:
    """Say to the chat what the mail says, and keep it in the transcript as ours, so that the user can answer it."""
    said = attempt.mail.inbound
    entry = Entry("assistant", said.text, data={marks.PROACTIVE: True, marks.AT: said.received_at})
    written = _commit_of(attempt, attempt.proof(), ANSWERED, (entry,), (Reply(said.text, said.media),), NO_CHANGE)
    return Conclusion(attempt, written, "announced")


def with_usage(attempt: Attempt, result: Result, change: Change) -> Change:
    """The change with what an agent has used. Requests without a row come first: the last prompt is a row's, if any is. Rows
    that were counted when their run began to wait for a person are not counted again."""
    spent = tuple([Entry("assistant", "", data={marks.USAGE: usage}) for usage in result.spent])
    entries = result.entries
    if attempt.steps is not None and attempt.steps.counted_rows:
        entries = entries[attempt.steps.counted_rows :]
    return _with_cost(attempt, (*spent, *entries), change)


def _with_cost(attempt: Attempt, rows: Sequence[Entry], change: Change) -> Change:
    if not has_usage(rows):
        return change
    day = day_at(now_ms(), attempt.parts.pipe.settings)
    return replace(change, usage=(*change.usage, *turns_usage(rows, whose(attempt), day)))


def _in_place_of_a_draft(prepared: Prepared, replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """A finished answer, of which a text takes the place of the draft that this attempt, or one before it, may have begun."""
    preview, attempt = prepared.preview, prepared.attempt
    if preview is None or not (preview.has_draft or attempt.may_have_draft or attempt.number > 1):
        return tuple(replies)
    return _in_place_of_the_draft(attempt, replies, preview.shown)


def _in_place_of_the_draft(attempt: Attempt, replies: Sequence[Reply], shown: str = "") -> tuple[Reply, ...]:
    """The replies, of which the first that is a text for this chat takes the draft's place, if one is found then."""
    for n, reply in enumerate(replies):
        if reply.text.strip() and reply.to is None and reply.edits is None:
            draft = replace(reply, draft=draft_id(attempt.mail.inbound.id), shown=shown)
            return (*replies[:n], draft, *replies[n + 1 :])
    return tuple(replies)


def end_mail(
    attempt: Attempt,
    ending: Ending,
    replies: Sequence[Reply] = (),
    entries: Sequence[Entry] = (),
    change: Change = NO_CHANGE,
) -> Conclusion:
    """End the mail without an answer: with this state, these rows, and what the chat is told, if anything."""
    if attempt.number and attempt.parts.previews is not None:
        replies = _in_place_of_the_draft(attempt, replies)
    written = _commit_of(attempt, attempt.proof(), ending, entries, replies, _with_run_ended(attempt, change))
    return Conclusion(attempt, written, COUNTED_AS[ending.state])


def bury(attempt: Attempt, reason: MessageReason, detail: str, notice: str = NOTICE) -> Conclusion:
    """Make the message a dead letter and tell the chat, once: both by the one commit. What its attempts had done, the next turn, and a
    replay, must know. Of a text that was ours to say, there is nothing to tell."""
    if attempt.inbound.kind in (Kind.ANNOUNCEMENT, Kind.CHECK):
        return end_mail(attempt, Ending(State.DEAD, reason, detail))
    if attempt.inbound.kind is Kind.FIRE:
        notice = NOT_RUN
    if attempt.inbound.kind is Kind.EXPIRY:
        notice = NOT_GONE_ON
    return end_unfinished(attempt, Ending(State.DEAD, reason, detail), UNFINISHED, (Reply(notice),))


def end_unfinished(attempt: Attempt, ending: Ending, note: str, replies: Sequence[Reply] = ()) -> Conclusion:
    """End mail though what its attempts began is not finished. What their steps have cost is counted. If those had effects, the message
    and a note of them stay in the conversation. Answers to it that the model had finished before more mail came in stay too, and are
    said before the replies, if there are any. Mail that was taken in gets turns of its own, which answer it."""
    steps = attempt.steps
    answers = steps.own_answers if steps is not None and replies else ()
    change, entries = _with_cost(attempt, steps.uncounted if steps is not None else (), NO_CHANGE), [*answers]
    if had := effects_of(attempt):
        entries.append(Entry("assistant", (GOT_NO_FURTHER if answers else note) + had))
    if entries:
        entries = [marks.user_row(attempt.inbound), *entries]
    said = [Reply(row.text) for row in answers]
    return end_mail(attempt, ending, (*said, *replies), entries, change)


def effects_of(attempt: Attempt) -> str:
    """A sentence for the model about what nothing takes back: calls that had their effect, or may have had it. Empty: there were
    none."""
    names = attempt.steps.effects() if attempt.steps is not None else ()
    return f" Not taken back, because it had its effect or may have had it: {', '.join(names)}." if names else ""


async def commit(conclusion: Conclusion) -> Kept:
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
    return Kept(tuple([mail.seq for mail in conclusion.commit.mail]), committed)


async def commit_change(attempt: Attempt, change: Change, state: State) -> None:
    """Change the session between two turns, by the same compare-and-set. No mail ends by this."""
    proof = replace(attempt.proof(), attempts=0)
    await attempt.parts.pipe.store.commit(
        Commit(attempt.session, attempt.key, proof, ending=Ending(state), change=change)
    )


async def _keep(conclusion: Conclusion) -> Committed:
    store = conclusion.attempt.parts.pipe.store
    return await keep(conclusion.attempt.lease, lambda: store.commit(conclusion.commit))


async def keep(lease: Lease, write: Callable[[], Awaitable[Written]]) -> Written:
    """Write a commit, however long the database is away, while the key is ours."""
    with stage("commit"):
        while True:
            try:
                return await write()
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
            log.get().info("stopped", key=key, message=commit.mail[0].inbound.id, reason=ending.reason)
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
    if attempt.mail.inbound.is_stateless:
        entries, change = (), to_be_forgotten(attempt.mail.inbound.id, change)
    if attempt.album and (ahead := max(one.seq for one in mail)) > in_line(mail):
        change = replace(change, facts={**change.facts, (attempt.session.id, MERGED_AHEAD + attempt.key): str(ahead)})
    parts = in_parts(attempt.mail.inbound.source.platform, replies)
    return Commit(attempt.session, attempt.key, proof, mail, entries, parts, ending, change)


def whose(attempt: Attempt) -> Whose:
    """Who pays for a turn."""
    return Whose(attempt.session.id, attempt.owner() or "", SessionKey.parse(attempt.key).agent)

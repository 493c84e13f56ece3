"""Step 7: what an agent is told before it runs, and the only place where it runs. workers/agents/reading.py reads its events
and keeps its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from shared import log, metrics
from shared.agent.files import BlobFiles
from shared.agent.steps import LoggedSteps
from shared.agent.turn import Result, Speaker, Turn
from shared.clock import now_ms
from shared.context import marks
from shared.context.memory import SHOWN
from shared.context.shared_thread import NamedSender, is_shared
from shared.errors import AlreadyDone, Stopped, Superseded, Unavailable
from shared.failpoints import reach
from shared.messages import Inbound, Kind, Reply, Session, State, Terms
from shared.session_key import SessionKey
from shared.stages import stage
from shared.store.change import Proof
from shared.store.runs import Hold, RecordedStep
from shared.store.secrets import SENDER_KEY
from shared.value import changed, value
from workers.agents.reading import Reading
from workers.delivery.preview import Preview
from workers.side.budget import day_at
from workers.side.compression import relieve
from workers.side.context import MODEL
from workers.turn.attempt import Attempt
from workers.turn.background import RESULT_NOTE, STEP_NOTE, TASK_NOTE
from workers.turn.busy.watch import BusyWatch
from workers.turn.conclude import commit_change, whose
from workers.turn.live_text import LiveText
from workers.turn.open import load_session
from workers.turn.parts import TurnParts
from workers.turn.question import ASKING
from workers.turn.steps import RunLog

NO_TERMS = Terms()

SCHEDULED = (
    "A schedule asks this, and nobody waits for the answer in this conversation: it goes to the schedule's targets. If there "
    "is nothing worth telling, answer exactly [SILENT], and nobody is told."
)
NOTES = {
    Kind.FIRE: SCHEDULED,
    Kind.TASK: TASK_NOTE,
    Kind.RESULT: RESULT_NOTE,
    Kind.STEP: STEP_NOTE,
}  # where nobody said what is asked


@value
class Prepared:
    """The turn as the agent is to run it."""

    attempt: Attempt
    turn: Turn
    proof: Proof  # with the turn's id
    facts: Mapping[tuple[str, str], str] = field(default_factory=dict)  # to be remembered by the turn's commit
    opening_notices: tuple[str, ...] = ()  # what the chat is told before the answer
    preview: Preview | None = None  # shows the answer while it is written


async def make_room(attempt: Attempt) -> Attempt:
    """Put the older part of the history into a summary first, where the turn would not fit or comes after a long pause.

    Room is made by a commit of its own, so an attempt that fails afterwards keeps it.
    """
    parts, session = attempt.parts, attempt.session
    if parts.side_model is None or parts.context is None or attempt.again is not None:
        return attempt
    model = session.facts.get(MODEL, "")
    relief = await relieve(parts.pipe, attempt.key, session, parts.side_model, parts.budgets, model)
    if relief is None:
        return attempt
    await commit_change(attempt, relief.change, State.ANSWERED)
    session = await load_session(attempt.key, parts.pipe.store)
    return replace(attempt, session=session, closing_notices=(relief.note,) if relief.note else ())


async def take_run_up(attempt: Attempt) -> Attempt:
    """Find what earlier attempts have done, and from now on refuse what they would still do. Costs nothing where no
    attempt has called a tool. What comes in from now on is watched for when the agent runs."""
    lease, session, runs = attempt.lease, attempt.session, attempt.parts.pipe.store.runs
    hold = Hold(attempt.run_id, lease.token, session.id, session.version, attempt.key, attempt.mail.inbound.id)
    earlier: Sequence[RecordedStep] = ()
    counted = 0
    if attempt.has_run and (held := await runs.holder(hold.run)) is not None:
        holder, counted = held
        # In this order: whoever takes the key from us after we looked finds the run as we saw it, or as we left it.
        reach("step.before_take_up")
        if not await lease.is_ours() or not await runs.take_up(hold, holder):
            raise Superseded(attempt.key)
        reach("step.after_take_up")
        earlier = await runs.steps(hold.run)
    if attempt.taken_up is not None:  # from here on, every commit of this mail ends the question
        attempt.parts.button_removal.begin(attempt.taken_up.ask_id)
    busy = BusyWatch((attempt.mail, *attempt.album), session, lease, attempt.parts)
    steps = RunLog(hold, runs, lease, earlier, counted)
    if steps.took:
        await busy.inbox.take_again(steps.took)
    return changed(attempt, steps=steps, busy=busy)


async def knowing_steps(attempt: Attempt) -> Attempt:
    """The attempt with what those before it have done, for an end without a run. Nothing is taken up: the commit decides."""
    if not attempt.has_run:
        return attempt
    lease, session, runs = attempt.lease, attempt.session, attempt.parts.pipe.store.runs
    hold = Hold(attempt.run_id, lease.token, session.id, session.version, attempt.key, attempt.mail.inbound.id)
    _, counted = await runs.holder(hold.run) or ("", 0)
    return changed(attempt, steps=RunLog(hold, runs, lease, await runs.steps(hold.run), counted))


async def prepare(attempt: Attempt) -> Prepared:
    """Write down for the agent everything that it may use in this turn. Nothing is committed here."""
    parts, session, inbound, key = attempt.parts, attempt.session, attempt.inbound, attempt.key
    history = attempt.again.history if attempt.again is not None else session.history
    if attempt.seed and attempt.again is None:
        history = (*attempt.seed, *history)
    notes, notices = parts.lifetime.notices(session, inbound.source)
    terms = inbound.terms or NO_TERMS
    if terms.history is not None:
        history = terms.history
    if (note := NOTES.get(inbound.kind)) is not None:
        notes, notices = (*notes, note), ()
    proof, steps, busy = attempt.proof(), attempt.steps, attempt.busy
    assert steps is not None and busy is not None
    turn = Turn(
        proof.turn_id,
        key,
        session.id,
        history,
        (replace(inbound, terms=None) if inbound.terms is not None else inbound,),
        attempt.number,
        instructions=terms.instructions,
        notes=notes,
        speaker=Speaker(attempt.owner() or ""),
        run=attempt.run_id,
        deadline=time.monotonic() + parts.pipe.settings.turn_timeout_seconds,
        rows=steps.rows,
        answers=attempt.taken_up.answers if attempt.taken_up is not None else {},
        asking=tuple(session.facts.get(ASKING, "").split()),
        asker=attempt.taken_up.asker if attempt.taken_up is not None else None,
        steps=LoggedSteps(steps),
        inbox=busy.inbox,
        files=BlobFiles(parts.pipe.blobs),
    )
    if inbound.source.chat_type != "dm":  # a DM has one speaker: the key need not be read to know that
        turn = await _with_speaker(parts, turn, inbound)
    if whose_notes := parts.notes_of(key, inbound):
        turn = replace(turn, memory=await _remembered(parts, session, whose_notes))
    preview = parts.previews.of(attempt.mail, attempt.lease) if parts.previews is not None else None
    if parts.context is None:
        return Prepared(attempt, turn, proof, opening_notices=notices, preview=preview)
    context = await parts.context.build(key, session, inbound)
    turn = replace(turn, context=context.text, model=session.facts.get(MODEL, ""))
    return Prepared(attempt, turn, proof, context.facts, notices, preview)


async def run(prepared: Prepared) -> Result:
    """Run the agent. Raises what `Reading.result` raises, Stopped if the user asked for it meanwhile, in whatever process.

    A crash leaves the mail and counts the attempt.
    """
    attempt, turn, preview = prepared.attempt, prepared.turn, prepared.preview
    lease, parts, busy, received_at = attempt.lease, attempt.parts, attempt.busy, attempt.mail.inbound.received_at
    steps = attempt.steps
    assert busy is not None and steps is not None
    if attempt.number > 1:
        metrics.REDELIVERED.inc()
    agent, live = parts.isolated_agent if attempt.isolated else parts.agent, LiveText.of(attempt)
    seen = live.take if live is not None else preview.heard if preview is not None else None
    reading = Reading(agent, turn, seen, steps.took)
    steps.shown = reading.shown
    showing = parts.typing.start(turn.mail[-1])
    lease.turn_begins(received_at, reading.stop)
    try:
        await busy.begin(reading.stop)
        if received_at <= lease.drop_until_ms and attempt.inbound.kind.is_dropped_by_stop:  # it came after we opened
            raise Stopped(reading.so_far())
        with stage("agent"):
            result = await reading.result()
        if live is not None:
            await live.finish(result)
        return result
    except Stopped as stopped:
        if lease.lost:  # another worker has the key, and ends the message
            raise asyncio.CancelledError from None
        if preview is not None:
            await preview.end()
        if preview is not None and preview.has_draft and stopped.kept is not None:
            raise Stopped(_said_so_far(stopped.kept)) from None
        raise
    except (Superseded, AlreadyDone, Unavailable):  # such an attempt does not count
        raise
    except Exception:
        await _count_failed(attempt, reading.so_far())
        raise
    finally:
        lease.turn_ends()
        await busy.end()
        if live is not None:
            live.close()
        if showing is not None:
            showing.cancel()
        if preview is not None:
            await preview.end()


async def _count_failed(attempt: Attempt, kept: Result) -> None:
    """Count what an attempt has used that failed. Rows of steps are left out: the next attempt goes on with them, and the end of
    the message counts them."""
    steps = attempt.steps
    known = [*steps.rows, *steps.uncounted] if steps is not None else []
    used = [row.data[marks.USAGE] for row in kept.entries if marks.USAGE in row.data and row not in known]
    day, usage = day_at(now_ms(), attempt.parts.pipe.settings), attempt.parts.pipe.store.usage
    try:
        for each in (*kept.spent, *used):
            if isinstance(each, Mapping):
                await usage.aside(each, whose(attempt), day)
    except Unavailable as error:
        log.get().warning("usage of a failed attempt not counted", key=attempt.key, error=str(error))


def _said_so_far(kept: Result) -> Result:
    """What is kept of a stopped turn, with its last words as a reply: it takes the place of the draft that showed some of them."""
    last = kept.entries[-1] if kept.entries else None
    if last is None or last.role != "assistant" or not last.text:
        return kept
    return replace(kept, replies=(Reply(last.text),))


async def _with_speaker(parts: TurnParts, turn: Turn, inbound: Inbound) -> Turn:
    """The turn with the name of who speaks, where several people share its conversation."""
    if not is_shared(SessionKey.parse(turn.session_key)):
        return turn
    key, said = await parts.pipe.store.secrets.of(SENDER_KEY), marks.user_row(inbound).data
    speaker = NamedSender.of(said.get(marks.SENDER), said.get(marks.SENDER_ID), key)
    return replace(turn, sender_key=key, speaker=replace(turn.speaker, shown_as=str(speaker)))


async def _remembered(parts: TurnParts, session: Session, notes_of: str) -> tuple[str, ...]:
    """The notes of an owner, read now unless they were read with the session."""
    told = session.prompt_facts
    if told is not None and told.notes_of == notes_of:
        return told.notes
    return tuple([note.text for note in await parts.pipe.store.memory.of(notes_of, SHOWN)])

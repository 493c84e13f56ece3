"""What an agent is told before it runs: the history that fits, who speaks, what is remembered, where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from shared.agent.turn import Speaker, Turn
from shared.context import marks
from shared.context.memory import SHOWN, owner
from shared.context.shared_thread import Sender, is_shared
from shared.messages import Inbound, State
from shared.session_key import SessionKey
from shared.store.change import Proof
from shared.store.secrets import SENDER_KEY
from shared.value import value
from workers.side.compression import relieve
from workers.side.context import MODEL
from workers.turn.attempt import Attempt
from workers.turn.conclude import commit_change
from workers.turn.open import load_session
from workers.turn.parts import TurnParts


@value
class Prepared:
    """The turn as the agent is to run it."""

    attempt: Attempt
    turn: Turn
    proof: Proof  # with the turn's id
    facts: Mapping[tuple[str, str], str] = field(default_factory=dict)  # to be remembered by the turn's commit
    opening_notices: tuple[str, ...] = ()  # what the chat is told before the answer


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


async def prepare(attempt: Attempt) -> Prepared:
    """Write down for the agent everything that it may use in this turn. Nothing is committed here."""
    parts, session, inbound, key = attempt.parts, attempt.session, attempt.inbound, attempt.key
    history = attempt.again.history if attempt.again is not None else session.history
    if attempt.seed and attempt.again is None:
        history = (*attempt.seed, *history)
    notes, notices = parts.lifetime.notices(session, inbound.source)
    proof = attempt.proof()
    turn = Turn(
        proof.turn_id,
        key,
        session.id,
        history,
        (inbound,),
        attempt.number,
        notes=notes,
        speaker=Speaker(attempt.owner() or ""),
        run=f"run_{attempt.mail.inbound.id}",
    )
    if inbound.source.chat_type != "dm":  # a DM has one speaker: the key need not be read to know that
        turn = await _with_speaker(parts, turn, inbound)
    if parts.side_model is not None:
        turn = replace(turn, memory=await _remembered(parts, key, inbound))
    if parts.context is None:
        return Prepared(attempt, turn, proof, opening_notices=notices)
    context = await parts.context.build(key, session, inbound)
    turn = replace(turn, context=context.text, model=session.facts.get(MODEL, ""))
    return Prepared(attempt, turn, proof, context.facts, notices)


async def _with_speaker(parts: TurnParts, turn: Turn, inbound: Inbound) -> Turn:
    """The turn with the name of who speaks, where several people share its conversation."""
    if not is_shared(SessionKey.parse(turn.session_key)):
        return turn
    key, said = await parts.pipe.store.secrets.of(SENDER_KEY), marks.user_row(inbound).data
    speaker = Sender.of(said.get(marks.SENDER), said.get(marks.SENDER_ID), key)
    return replace(turn, sender_key=key, speaker=replace(turn.speaker, shown_as=str(speaker)))


async def _remembered(parts: TurnParts, key: str, inbound: Inbound) -> tuple[str, ...]:
    """The notes that are kept about this user, or about everybody here where a conversation is shared."""
    if not parts.pipe.settings.memory.enabled:
        return ()
    whose = owner(SessionKey.parse(key), marks.user_row(inbound).data.get(marks.SENDER_ID))
    return tuple(note.text for note in await parts.pipe.store.memory.of(whose, SHOWN))

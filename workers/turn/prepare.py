"""What a turn is told before it runs: who speaks, and for agents with a model or a wish for context what they need besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace

from shared.agent.turn import Turn
from shared.context import marks
from shared.context.memory import SHOWN, owner
from shared.context.shared_thread import Sender, is_shared
from shared.messages import Inbound, Session
from shared.session_key import SessionKey
from shared.store.change import Change
from shared.store.secrets import SENDER_KEY
from shared.value import value
from workers.side.compression import relieve
from workers.side.context import MODEL
from workers.turn.parts import Runner

CarryOut = Callable[
    [Change], Awaitable[Session]
]  # commits a change of the session alone, and gives the session as it is then


@value
class Prepared:
    """The turn as it is to run, and the session that it is to be committed to."""

    turn: Turn
    session: Session
    facts: Mapping[tuple[str, str], str] = field(default_factory=dict)  # to be remembered by the turn's commit
    notices: tuple[str, ...] = ()  # what the chat is told after the answer


async def prepare(runner: Runner, turn: Turn, session: Session, carry_out: CarryOut | None) -> Prepared:
    """Make room for the turn if it would not fit, and tell it who speaks, what is remembered and where it runs.

    Room is made by a commit of its own (`carry_out`), so a turn that fails after it keeps the room.
    """
    asks, notices = runner.asks, tuple[str, ...]()
    if asks is not None and runner.briefing is not None and carry_out is not None:
        model = session.facts.get(MODEL, "")
        relief = await relieve(runner.pipe, turn.session_key, session, asks, runner.budgets, model)
        if relief is not None:
            session = await carry_out(relief.change)
            turn, notices = replace(turn, history=session.history), (relief.note,) if relief.note else ()
    [inbound] = turn.mail
    if inbound.source.chat_type != "dm":  # a DM is nobody's but one user's: the key need not be read for that
        turn = await _with_speaker(runner, turn, inbound)
    if asks is not None:
        turn = replace(turn, memory=await _remembered(runner, turn.session_key, inbound))
    if runner.briefing is None:
        return Prepared(turn, session, notices=notices)
    briefed = await runner.briefing.tell(turn.session_key, session, inbound)
    turn = replace(turn, context=briefed.text, model=session.facts.get(MODEL, ""))
    return Prepared(turn, session, briefed.facts or {}, notices)


async def _with_speaker(runner: Runner, turn: Turn, inbound: Inbound) -> Turn:
    """The turn with who speaks, where several people share its conversation."""
    if not is_shared(SessionKey.parse(turn.session_key)):
        return turn
    key, said = await runner.pipe.store.secrets.of(SENDER_KEY), marks.user_row(inbound).data
    speaker = Sender.of(said.get(marks.SENDER), said.get(marks.SENDER_ID), key)
    return replace(turn, sender_key=key, speaker=replace(turn.speaker, shown_as=str(speaker)))


async def _remembered(runner: Runner, key: str, inbound: Inbound) -> tuple[str, ...]:
    if not runner.pipe.settings.memory.enabled:
        return ()
    whose = owner(SessionKey.parse(key), marks.user_row(inbound).data.get(marks.SENDER_ID))
    return tuple(note.text for note in await runner.pipe.store.memory.of(whose, SHOWN))

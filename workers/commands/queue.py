"""/queue: what waits in this conversation, and what a message does that comes while a turn runs. /steer: say something to the
running turn, whatever the mode."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from shared.busy import BUSY_MODE, STEER, BusyMode, steering_words
from shared.errors import Malformed, Unavailable
from shared.lane.session_lock import joined
from shared.lane.telling import tell_turn
from shared.mail import TakeNotes, decode_mail
from shared.messages import Inbound, Kind
from shared.pieces import AT_MOST, belong_together
from shared.reading.keys import KeyPhase, first_mail, state_of_key
from shared.store.change import Change
from workers.commands import Command, CommandAnswer, CommandCall, Instead, register
from workers.turn.busy.mode import BusyModes

SHOWN, SHOWN_CHARACTERS = 10, 60
STEER_CHARACTERS = 20_000
DEFAULT = "default"
MEANS = {
    BusyMode.QUEUE: "each message waits for a turn of its own",
    BusyMode.COLLECT: "what you say during a turn becomes one turn",
    BusyMode.STEER: "the running turn takes in what you say",
    BusyMode.INTERRUPT: "a new message ends the running turn, which keeps what it did",
    BusyMode.ROLLBACK: "a new message ends the running turn, and what it did is dropped",
    BusyMode.REJECT: "messages during a turn are refused",
}


async def queue(call: CommandCall) -> CommandAnswer:
    """Show what waits, or set the mode. The mode is kept with the session; a running turn goes by it at once."""
    what, _, name = call.args.partition(" ")
    if not what:
        return CommandAnswer(f"{_mode_line(_mode(call))}\n{await _waiting(call)}")
    if what.lower() != "mode" or (name := name.strip().lower()) not in {*BusyMode, DEFAULT}:
        return CommandAnswer(f"Say /queue, or /queue mode and one of {', '.join(BusyMode)}, {DEFAULT}.")
    mode = BusyMode.named(name) or BusyModes.of(call.pipe.settings).in_chat(call.inbound)
    for key in (call.session_key, *joined(call.session.facts, call.session_key)):
        with suppress(Unavailable):  # the turn that runs goes on as before; the next one reads the fact
            await tell_turn(call.pipe.turns, key, mode)
    facts = {(call.session.id, BUSY_MODE): None if name == DEFAULT else mode.value}
    return CommandAnswer(_mode_line(mode), Change(facts=facts))


def _mode(call: CommandCall) -> BusyMode:
    return BusyModes.of(call.pipe.settings).in_session(call.session, call.inbound)


def _mode_line(mode: BusyMode) -> str:
    return f"Mode {mode.value}: {MEANS[mode]}."


async def _waiting(call: CommandCall) -> str:
    """The messages that wait, without those that the running turn answers."""
    lane, key = call.pipe.turns, call.session_key
    state = await state_of_key(lane, key)
    mail = [_content(one.payload) for one in await first_mail(lane, key, SHOWN + AT_MOST)]
    answered = _answered(mail) if state.state is KeyPhase.LEASED else 0
    count, said = state.waiting - answered, [_said(content) for content in mail[answered:]]
    if count <= 0:
        return "Nothing waits."
    lines = [f"{n}. {text}" for n, text in enumerate(said[:SHOWN], 1)]
    if count > len(lines):
        lines.append(f"and {count - len(lines)} more")
    return "\n".join([f"{'1 message waits' if count == 1 else f'{count} messages wait'}:", *lines])


def _content(payload: bytes) -> Inbound | TakeNotes | None:
    try:
        return decode_mail(payload)
    except Malformed:
        return None


def _answered(mail: Sequence[Inbound | TakeNotes | None]) -> int:
    """How many of the first messages one turn answers: the first, and what was sent as one with it."""
    for n, (before, after) in enumerate(pairwise(mail[:AT_MOST]), 1):
        if not (isinstance(before, Inbound) and isinstance(after, Inbound) and belong_together(before, after)):
            return n
    return len(mail[:AT_MOST])


def _said(content: Inbound | TakeNotes | None) -> str:
    if content is None:
        return "(cannot be read here)"
    if not isinstance(content, Inbound) or content.kind is not Kind.MESSAGE:
        return "(not from a person)"
    text = " ".join(content.text.split()) or "(a file)"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


async def steer(call: CommandCall) -> CommandAnswer | Instead:
    """Nothing ran that could take it: it gets a turn of its own."""
    words = steering_words(call.inbound.text)
    return Instead(words) if words is not None else CommandAnswer("Say /steer and what the running turn should know.")


register(Command("queue", "what waits, and what a message does while I work", queue, args="[mode NAME]"))
register(Command(STEER, "tell me something about what I am doing now", steer, args="TEXT", limit=STEER_CHARACTERS))

"""Dead letters: a letter goes back to where it came from, once, however often it is asked for; or it is dropped."""

from __future__ import annotations

from dataclasses import replace

from shared.clock import now_ms
from shared.codec import storable
from shared.door import accept
from shared.errors import CannotDo, MailboxFull, Malformed, Unavailable
from shared.mail import decode_inbound
from shared.messages import Inbound, Kind
from shared.pipeline import Pipeline
from shared.reading.dead_letters import LetterState, WholeDeadLetter, dead_letter, replay_of
from shared.session_key import SessionKey
from shared.store import Store
from shared.value import value

TEXT_LIMIT = 50_000  # characters of an edited message


@value
class ReplayedLetter:
    """What came of a replay: the new message, or the destination whose part waits again."""

    id: int
    message: str | None = None
    destination: str | None = None
    note: str = ""


@value
class DroppedLetter:
    """A letter that was closed without doing anything about it. Its record stays."""

    id: int
    state: LetterState = LetterState.DROPPED


async def replay_letter(pipe: Pipeline, id: int) -> ReplayedLetter:
    """Run an inbound again or send a reply again; CannotDo for anything else and for a letter that is not open."""
    letter = await _open_letter(pipe, id)
    if letter.kind == "inbound":
        return await _run_again(pipe, letter)
    if letter.kind == "reply":
        return await _send_again(pipe, letter)
    raise CannotDo(f"dead letter {id} is a {letter.kind} that was never understood: it can only be dropped")


async def edit_and_replay_letter(pipe: Pipeline, id: int, text: str) -> ReplayedLetter:
    """Run an inbound again with another text: a new message at the end of its key's line. The letter keeps its own text.

    CannotDo for anything but a message of a person, for an empty text and for a letter that is not open. A letter runs
    once, edited or not.
    """
    letter = await _open_letter(pipe, id)
    if letter.kind != "inbound":
        raise CannotDo(f"dead letter {id} is a {letter.kind}: only a message can be edited")
    text = storable(text).strip()
    if not 0 < len(text) <= TEXT_LIMIT:
        raise CannotDo(f"the text of a message has 1 to {TEXT_LIMIT:,} characters")
    return await _run_again(pipe, letter, text)


async def drop_letter(store: Store, id: int) -> DroppedLetter:
    """Close the letter and do nothing about it; CannotDo where somebody closed it before."""
    await dead_letter(store, id)
    if not await store.dead.close(id, LetterState.DROPPED):
        raise CannotDo(f"dead letter {id} was closed before: `keyturn dead show {id}` says how")
    return DroppedLetter(id)


async def _open_letter(pipe: Pipeline, id: int) -> WholeDeadLetter:
    letter = await dead_letter(pipe.store, id)
    if letter.state is not LetterState.OPEN:
        raise CannotDo(f"dead letter {id} was {letter.state} before")
    return letter


async def _run_again(pipe: Pipeline, letter: WholeDeadLetter, text: str | None = None) -> ReplayedLetter:
    """A new inbound at the end of its key's line, with its own text or another. After a crash before the letter is closed, the next replay finds it
    accepted and only closes the letter."""
    inbound = await _understood(pipe, letter)
    if text is not None:
        if inbound.kind is not Kind.MESSAGE:
            raise CannotDo(f"nobody said what dead letter {letter.id} holds: it cannot be edited")
        inbound = replace(inbound, text=text)
    again = replay_of(inbound, letter.id)
    # what was ours to say or to run has no user, by whom its conversation could be found
    is_ours = inbound.kind is not Kind.MESSAGE and letter.session_key is not None
    key = SessionKey.parse(letter.session_key or "") if is_ours else None
    try:
        accepted = await accept(pipe, replace(again, received_at=now_ms()), key)
    except MailboxFull:
        raise CannotDo(f"the mailbox of {letter.session_key} is full: try again when it has drained") from None
    except Malformed as error:  # it was accepted under other settings
        raise CannotDo(f"dead letter {letter.id} cannot be replayed: {error}") from None
    note = "" if accepted.fresh else "it had been replayed before and does not run twice"
    if not await pipe.store.dead.close(letter.id, LetterState.REPLAYED) and accepted.fresh:
        note = "somebody closed the letter meanwhile; the message runs all the same"
    return ReplayedLetter(letter.id, message=accepted.id, note=note)


async def _understood(pipe: Pipeline, letter: WholeDeadLetter) -> Inbound:
    """The inbound as it was accepted. One that could not be read then may be readable now: the journal has it whole."""
    payload = letter.payload
    if letter.reason == "malformed" and (row := await pipe.store.journal.find(letter.ref)) is not None:
        payload = row["payload"]
    try:
        return decode_inbound(payload)
    except Malformed as error:
        raise CannotDo(f"dead letter {letter.id} cannot be read: {error}") from None


async def _send_again(pipe: Pipeline, letter: WholeDeadLetter) -> ReplayedLetter:
    """The part goes back to its place in the outbox, with the same idempotency key."""
    part_id = int(letter.ref)
    was_open, destination = await pipe.store.dead.send_again(letter.id, part_id)
    if not was_open:
        raise CannotDo(f"dead letter {letter.id} was closed before: `keyturn dead show {letter.id}` says how")
    if destination is None:
        return ReplayedLetter(letter.id, note="the reply is no longer buried: nothing to send")
    try:
        await pipe.deliveries.put(destination, part_id, str(part_id).encode())
    except Unavailable as error:
        return ReplayedLetter(letter.id, destination=destination, note=f"the housekeeper will wake it ({error})")
    return ReplayedLetter(letter.id, destination=destination)

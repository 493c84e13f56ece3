"""Deliveries: let a destination go on now, or give up what waits for it."""

from __future__ import annotations

from collections.abc import Awaitable

from shared.errors import CannotDo, Malformed
from shared.lane.freeing import free
from shared.lane_key import Destination
from shared.operating.dead_letters import drop_letter, replay_letter
from shared.pipeline import Pipeline
from shared.reading.destinations import parts_of_destination
from shared.reading.keys import KeyPhase, state_of_key
from shared.value import value

AT_MOST = 1000  # parts that were given up and are looked at in one go


@value
class ReleasedDestination:
    """A destination that goes on now: how it stood, whether it was closed, and how many parts are sent again."""

    destination: str
    was: KeyPhase
    was_closed: bool
    waiting: int
    sent_again: int


@value
class DroppedParts:
    """What was given up for a destination, and how many parts were left because they are being sent."""

    destination: str
    dropped: tuple[int, ...]
    letters: tuple[int, ...]  # of parts that were given up before: closed
    being_sent: int


async def release_destination(pipe: Pipeline, destination: str, *, buried: bool) -> ReleasedDestination:
    """End a destination's wait: what its chat was asked to wait for is forgotten, and so is that it is closed. With `buried`,
    parts that were given up are sent again, after those that wait. CannotDo where there is nothing of this. A wait of
    the whole bot stays. Safe to repeat, and while a worker is sending there."""
    to = _parsed(destination)
    was_closed = await pipe.store.closed_chats.open(destination)
    await pipe.budgets.free(to)
    state = await state_of_key(pipe.deliveries, destination)
    parts = await parts_of_destination(pipe, destination, AT_MOST)
    again = parts.buried if buried else ()
    if not (was_closed or parts.waiting or again):
        raise CannotDo(f"nothing waits for {destination}")
    sent_again = sum([await _unless_closed(replay_letter(pipe, each.letter)) for each in reversed(again)])
    if state.state is KeyPhase.DELAYED:
        await free(pipe.deliveries, destination)
    elif state.state is KeyPhase.IDLE and parts.waiting:
        first = parts.waiting[0].id
        await pipe.deliveries.put(destination, first, str(first).encode())
    return ReleasedDestination(destination, state.state, was_closed, len(parts.waiting), sent_again)


async def drop_parts(pipe: Pipeline, destination: str, part: int = 0) -> DroppedParts:
    """Give up what waits for a destination, and close the dead letters of what was given up before; with `part` that one only.
    CannotDo where there is nothing of this. A part that is being sent is left: it may have arrived."""
    _parsed(destination)
    dropped = await pipe.store.outbox.drop(destination, part)
    found = await parts_of_destination(pipe, destination, AT_MOST)
    letters = [each.letter for each in found.buried if part in (0, each.part.id)]
    closed = [letter for letter in letters if await _unless_closed(drop_letter(pipe.store, letter))]
    left = [each.id for each in found.waiting if each.state == "sending" and part in (0, each.id)]
    if not (dropped or letters or left):
        raise CannotDo(f"part {part} does not wait for {destination}" if part else f"nothing waits for {destination}")
    return DroppedParts(destination, tuple(dropped), tuple(closed), len(left))


async def _unless_closed(work: Awaitable[object]) -> bool:
    """Whether a dead letter was dealt with now. False: somebody else did meanwhile, which holds up no other."""
    try:
        await work
    except CannotDo:
        return False
    return True


def _parsed(destination: str) -> Destination:
    try:
        return Destination.parse(destination)
    except Malformed:
        raise CannotDo(f"{destination} is no destination: those look like to:platform:chat") from None

"""Destinations as operators look for them: what waits for each, what was given up, and which are held or closed."""

from __future__ import annotations

from datetime import datetime

from shared.clock import moment
from shared.pipeline import Pipeline
from shared.reading.deliveries import DeliveryPart, part_of_row
from shared.reading.keys import KeyPhase, states_of_keys
from shared.store.database import Row
from shared.value import value

FLAGGED = 10_000  # parts that were given up or are ambiguous, among which those of a destination are looked for


@value
class DeliveryDestination:
    """A chat, and how its replies stand. Delayed: it was asked to wait, or its budget has nothing left, until `until`.
    Closed: it takes nothing from us, for this reason."""

    destination: str
    state: KeyPhase
    waiting: int = 0
    ambiguous: int = 0  # of all these: nobody knows whether an attempt arrived
    buried: int = 0  # given up, with a dead letter that is open
    oldest: datetime | None = None
    until: datetime | None = None
    closed: str | None = None


@value
class BuriedPart:
    """A part that was given up, and the number of its dead letter."""

    part: DeliveryPart
    letter: int


@value
class DestinationParts:
    """The parts of one destination with a decision to take."""

    waiting: tuple[DeliveryPart, ...]
    buried: tuple[BuriedPart, ...]


async def destinations(pipe: Pipeline, limit: int, after: str = "") -> list[DeliveryDestination]:
    """Destinations with parts that wait or were given up, and closed chats, in order, after a destination."""
    rows = {row["destination"]: row for row in await pipe.store.overview.destinations(after, limit, FLAGGED)}
    closed = {chat.destination: chat.reason for chat in await pipe.store.closed_chats.page(after=after, limit=limit)}
    names = sorted({*rows, *closed})[:limit]
    states = {state.key: state for state in await states_of_keys(pipe.deliveries, names)}
    found = []
    for name in names:
        row: Row = rows.get(name, {})
        oldest, state = row.get("oldest"), states[name]
        found.append(
            DeliveryDestination(
                name,
                state.state,
                waiting=int(row.get("waiting", 0)),
                ambiguous=int(row.get("ambiguous", 0)),
                buried=int(row.get("buried", 0)),
                oldest=moment(oldest) if oldest is not None else None,
                until=state.until if state.state is KeyPhase.DELAYED else None,
                closed=closed.get(name),
            )
        )
    return found


async def parts_of_destination(pipe: Pipeline, destination: str, limit: int) -> DestinationParts:
    """What waits for a destination, in order, and what was given up, the newest first."""
    overview = pipe.store.overview
    waiting, buried = (
        await overview.waiting_parts(destination, limit),
        await overview.buried_parts(destination, limit, FLAGGED),
    )
    return DestinationParts(
        tuple([part_of_row(row) for row in waiting]),
        tuple([BuriedPart(part_of_row(row), row["letter"]) for row in buried]),
    )

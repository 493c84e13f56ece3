"""Pairing: who asked for a code, and who was let in by one. No code is shown: none is stored."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from shared.clock import moment
from shared.value import value

if TYPE_CHECKING:
    from shared.store import Store


@value
class PairingRequest:
    """A person who was told a code that is still valid."""

    platform: str
    user: str
    name: str
    at: datetime


@value
class PairedPerson:
    """A person who was let in, and by whom."""

    platform: str
    user: str
    name: str
    at: datetime
    by: str


@value
class People:
    """Who waits, oldest first, and who was let in, newest first."""

    requests: tuple[PairingRequest, ...]
    approved: tuple[PairedPerson, ...]


async def paired_people(store: Store, limit: int, platform: str = "") -> People:
    """The people that pairing knows, on a platform or on all. Names are strangers' text: show them as text only."""
    requests = [
        PairingRequest(row["platform"], row["user_id"], row["user_name"], moment(row["asked_at"]))
        for row in await store.pairings.requests(limit, platform)
    ]
    approved = [
        PairedPerson(row["platform"], row["user_id"], row["user_name"], moment(row["approved_at"]), row["approved_by"])
        for row in await store.pairings.approved(limit, platform)
    ]
    return People(tuple(requests), tuple(approved))

"""What the lane's scripts answer, as values: nobody outside the wrappers sees a script's numbers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from shared.lane.wake import StartedWake
from shared.value import value

if TYPE_CHECKING:
    from shared.lane.lease import Lease


class Put(Enum):
    """What came of putting mail into a mailbox."""

    WOKEN = 1  # it is there, and the key got a wake
    WAITING = 0  # it is there, and the key was awake already
    SEEN = -1  # the same message was put before
    FULL = -2


class Claim(Enum):
    """Whether the key of a started wake could be claimed."""

    GONE = -1  # the job no longer exists
    IDLE = 0  # nothing waits for the key
    HELD = 1  # another worker has it
    LEASED = 2  # it is ours
    PAUSED = 3  # a pause holds it


class Recovered(Enum):
    """Why a key was woken when its time had come."""

    NOTHING = 0
    DELAY_ENDED = 1
    LEASE_EXPIRED = 2
    WAKE_LOST = 3
    WAKE_LATE = 4


@value
class Started:
    """What came of starting a wake."""

    claim: Claim
    wake: StartedWake | None = None  # None: the job is gone, and there is nothing to finish
    data: bytes = b""  # the call that the job names, for the worker to check
    lease: Lease | None = None  # where the claim is LEASED


@value
class Admission:
    """What a mailbox accepts."""

    limit: int = 10**9  # pieces of mail that may wait
    seen: str = ""  # the message's id: a second put within `seen_ttl_s` adds nothing
    seen_ttl_s: int = 0  # 0: do not look


UNLIMITED = Admission()

"""What admit.lua says of a request."""

from __future__ import annotations

from enum import Enum

from shared.value import value


class Obstacle(Enum):
    """Why a request may not be sent now, by the number that admit.lua returns."""

    COOLING = 1  # the provider asked everybody to wait
    FULL = 2  # as many requests are open as may be
    RATE = 3  # a minute's requests or tokens are used up


@value
class AdmissionVerdict:
    """What is in the way, and for how many seconds. Nothing in the way: the request may be sent after the wait."""

    obstacle: Obstacle | None
    wait: float

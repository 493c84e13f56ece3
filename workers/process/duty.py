"""Whether a worker takes wakes just now."""

from __future__ import annotations

import asyncio


class Duty:
    """A worker takes wakes unless it is stopping or somebody suspended all workers (`rq suspend`).

    Whoever popped a wake and finds the worker off duty puts it back.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self.suspended = False  # as the last heartbeat found it

    @property
    def takes_wakes(self) -> bool:
        """Whether a wake that is popped now may be run."""
        return not self.suspended and not self.stopping.is_set()

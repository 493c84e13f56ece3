"""Stands for an agent that the settings no longer name."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shared.agent.events import Done, Event
from shared.agent.turn import Turn
from shared.errors import Permanent
from workers.agents.contract import NeedsNoTask


class Missing(NeedsNoTask):
    """Refuses every turn: no other agent may answer in the place of the one that is gone."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        raise Permanent(f"there is no agent {self._name}", "The agent of this conversation is no longer here.")
        yield Done()  # makes this an async generator

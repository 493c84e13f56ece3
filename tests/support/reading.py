"""An agent's answer, read as the pipeline reads it."""

from __future__ import annotations

from shared.agent.turn import Result, Turn
from workers.agents.contract import Agent, StartsFirst
from workers.agents.reading import Reading


async def answer_of(agent: Agent | StartsFirst, turn: Turn) -> Result:
    return await Reading(agent, turn).result()

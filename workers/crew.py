"""What the jobs of one worker process work with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shared.pipeline import Pipeline
from workers.agent import Agent, Punctual, asks
from workers.agent.apart import Apart
from workers.commands.custom import custom
from workers.delivery import open_senders
from workers.delivery.deliver import Courier
from workers.delivery.typing_indicator import TypingAgent
from workers.turn import Runner


@dataclass(frozen=True, slots=True)
class Crew:
    pipe: Pipeline
    runner: Runner
    courier: Courier


@asynccontextmanager
async def open_crew(pipe: Pipeline, agent: Agent, worker: str) -> AsyncIterator[Crew]:
    custom(pipe.settings)  # a worker whose commands cannot work does not start
    timeout_seconds = pipe.settings.turn_timeout_seconds
    punctual, apart = Punctual(agent, timeout_seconds), Apart(pipe.settings.agent, timeout_seconds)
    try:
        async with open_senders(pipe) as senders:
            agents = (TypingAgent(punctual, senders), TypingAgent(apart, senders))
            yield Crew(pipe, Runner(pipe, *agents, worker, asks(agent)), Courier(pipe, senders))
    finally:
        apart.close()

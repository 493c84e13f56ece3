"""What the jobs of one worker process work with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shared.pipeline import Pipeline
from workers.agent import Agent, Punctual, asks
from workers.agent.apart import Apart
from workers.budget import Budgets
from workers.delivery import open_senders
from workers.delivery.deliver import Courier
from workers.delivery.typing_indicator import TypingAgent
from workers.titles import Titling
from workers.turn import Runner


@dataclass(frozen=True, slots=True)
class Crew:
    pipe: Pipeline
    runner: Runner
    courier: Courier


@asynccontextmanager
async def open_crew(pipe: Pipeline, agent: Agent, worker: str) -> AsyncIterator[Crew]:
    timeout_seconds = pipe.settings.turn_timeout_seconds
    punctual, apart = Punctual(agent, timeout_seconds), Apart(pipe.settings.agent, timeout_seconds)
    model = asks(agent)
    titling = Titling(pipe, model) if pipe.settings.titles else None
    budgets = Budgets(pipe) if pipe.settings.budget.of_users or pipe.settings.budget.of_all else None
    try:
        async with open_senders(pipe) as senders:
            agents = (TypingAgent(punctual, senders), TypingAgent(apart, senders))
            runner = Runner(pipe, *agents, worker, model, titling, budgets)
            yield Crew(pipe, runner, Courier(pipe, senders))
    finally:
        if titling is not None:
            await titling.close()
        apart.close()

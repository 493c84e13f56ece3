"""What the jobs of one worker process work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace

from shared.pipeline import Pipeline
from shared.settings import MAIN
from workers.agent import Agent, Punctual, asks, resolve, wants_context
from workers.agent.apart import Apart
from workers.commands.custom import custom
from workers.context import Briefing
from workers.delivery import Sender, open_senders
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
    """Everything that runs turns and deliveries: `agent` as main, and those that the settings name beside it."""
    settings = pipe.settings
    custom(settings)  # a worker whose commands cannot work does not start
    with ExitStack() as stack:
        async with open_senders(pipe) as senders:
            others = {
                name: _runner(pipe, name, resolve(block.agent, settings.for_agent(name)), worker, senders, stack)
                for name, block in settings.agents.items()
            }
            main = _runner(pipe, MAIN, agent, worker, senders, stack)
            yield Crew(pipe, replace(main, others=others), Courier(pipe, senders))


def _runner(
    pipe: Pipeline, name: str, agent: Agent, worker: str, senders: Mapping[str, Sender], stack: ExitStack
) -> Runner:
    timeout_seconds = pipe.settings.turn_timeout_seconds
    apart = stack.enter_context(closing(Apart(pipe.settings.for_agent(name).agent, timeout_seconds, name)))
    punctual = Punctual(agent, timeout_seconds)
    briefing = Briefing(pipe.settings, pipe.store) if wants_context(agent) else None
    agents = (TypingAgent(punctual, senders), TypingAgent(apart, senders))
    return Runner(pipe, *agents, worker, asks(agent), briefing)

"""What the jobs of one worker process work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace

from shared.pipeline import Pipeline
from shared.session_key import MAIN
from shared.value import value
from workers.agents.contract import Agent, Punctual, asks, resolve, wants_context
from workers.agents.isolated import Apart
from workers.commands.custom import custom
from workers.delivery import open_senders
from workers.delivery.deliver import Courier
from workers.delivery.publish import Publisher
from workers.delivery.sender import Sender
from workers.delivery.typing_indicator import TypingAgent
from workers.side.budget import Budgets
from workers.side.context import ContextBuilder
from workers.side.titles import Titling
from workers.turn.parts import TurnParts


@value
class ProcessParts:
    """What a worker process is put together from, once; its jobs are given this."""

    pipe: Pipeline
    runner: TurnParts  # runs turns
    courier: Courier  # sends replies
    publisher: Publisher  # tells delivery of replies


@asynccontextmanager
async def open_parts(pipe: Pipeline, agent: Agent, worker: str) -> AsyncIterator[ProcessParts]:
    """Everything that runs turns and deliveries: `agent` as main, and those that the settings name beside it."""
    settings = pipe.settings
    custom(settings)  # a worker whose commands cannot work does not start
    async with open_senders(pipe) as senders, AsyncExitStack() as stack:
        others = {
            name: _runner(pipe, name, resolve(block.agent, settings.for_agent(name)), worker, senders, stack)
            for name, block in settings.agents.items()
        }
        main = _runner(pipe, MAIN, agent, worker, senders, stack)
        publisher = Publisher(pipe.deliveries)
        others = {name: replace(other, publisher=publisher) for name, other in others.items()}
        yield ProcessParts(
            pipe, replace(main, other_agents=others, publisher=publisher), Courier(pipe, senders), publisher
        )


def _runner(
    pipe: Pipeline, name: str, agent: Agent, worker: str, senders: Mapping[str, Sender], stack: AsyncExitStack
) -> TurnParts:
    settings, model = pipe.settings, asks(agent)
    timeout_seconds = settings.turn_timeout_seconds
    apart = stack.enter_context(closing(Apart(settings.for_agent(name).agent, timeout_seconds, name)))
    agents = (TypingAgent(Punctual(agent, timeout_seconds), senders), TypingAgent(apart, senders))
    budgets = Budgets(pipe) if settings.budget.of_users or settings.budget.of_all else None
    titling = Titling(pipe, model, budgets) if settings.titles else None
    if titling is not None:
        stack.push_async_callback(titling.close)
    return TurnParts(
        pipe,
        *agents,
        worker,
        model,
        context=ContextBuilder(settings, pipe.store) if wants_context(agent) else None,
        titles=titling,
        budgets=budgets,
    )

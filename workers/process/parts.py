"""What the jobs of one worker process work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace

from shared.pipeline import Pipeline
from shared.public_http import open_public_http
from shared.session_key import MAIN
from shared.value import value
from workers.agents.capabilities import TakesAdmission, asks, takes_admission, takes_tools, wants_context
from workers.agents.contract import Agent, Answers
from workers.agents.isolated import Isolated
from workers.agents.resolve import adapted, resolve
from workers.commands.custom import custom
from workers.delivery import open_senders
from workers.delivery.button_removal import ButtonRemoval
from workers.delivery.deliver import Deliveries
from workers.delivery.preview import Previews
from workers.delivery.publish import Publisher
from workers.delivery.sender import Sender
from workers.delivery.typing_indicator import TypingIndicator
from workers.limits.admission import RedisAdmission
from workers.media.fetch import MediaFetcher
from workers.side.budget import Budgets
from workers.side.context import ContextBuilder
from workers.side.own_tools import own_tools
from workers.side.titles import Titling
from workers.turn.parts import TurnParts


@value
class ProcessParts:
    """What a worker process is put together from, once; its jobs are given this."""

    pipe: Pipeline
    runner: TurnParts  # runs turns
    deliveries: Deliveries  # sends replies
    publisher: Publisher  # tells delivery of replies


@asynccontextmanager
async def open_parts(pipe: Pipeline, agent: Agent | Answers, worker: str) -> AsyncIterator[ProcessParts]:
    """Everything that runs turns and deliveries: `agent` as main, and those that the settings name beside it."""
    settings = pipe.settings
    custom(settings)  # a worker whose commands cannot work does not start
    media = settings.media
    async with (
        open_senders(pipe) as senders,
        open_public_http(media.allowed_hosts) as public,
        AsyncExitStack() as stack,
    ):
        others = {
            name: _runner(pipe, name, resolve(block.agent, settings.for_agent(name)), worker, senders, stack)
            for name, block in settings.agents.items()
        }
        main = _runner(pipe, MAIN, adapted(agent), worker, senders, stack)
        _limit([main, *others.values()], pipe, stack)
        publisher = Publisher(pipe.deliveries)
        button_removal = ButtonRemoval(pipe, senders)
        stack.push_async_callback(button_removal.close)
        previews, fetcher = Previews(pipe, senders, publisher), MediaFetcher(pipe.blobs, media, senders, public)

        def complete(parts: TurnParts) -> TurnParts:
            return replace(parts, publisher=publisher, previews=previews, media=fetcher, button_removal=button_removal)

        others = {name: complete(other) for name, other in others.items()}
        yield ProcessParts(pipe, replace(complete(main), other_agents=others), Deliveries(pipe, senders), publisher)


def _limit(agents: Iterable[TurnParts], pipe: Pipeline, stack: AsyncExitStack) -> None:
    """Let the agents that ask providers be admitted by one admission, which is opened only where there are any."""
    limited: list[TakesAdmission] = []
    for parts in agents:
        if (takes := takes_admission(parts.agent)) is not None:
            limited += [takes, *filter(None, [takes_admission(parts.isolated_agent)])]
    if limited:
        settings = pipe.settings
        admission = RedisAdmission(pipe.servers, lease=settings.lease, renew_every=settings.heartbeat)
        admission.start()
        stack.push_async_callback(admission.close)
        for agent in limited:
            agent.take_admission(admission)


def _runner(
    pipe: Pipeline, name: str, agent: Agent, worker: str, senders: Mapping[str, Sender], stack: AsyncExitStack
) -> TurnParts:
    settings, model = pipe.settings.for_agent(name), asks(agent)
    isolated = stack.enter_context(closing(Isolated(settings.agent, name)))
    if (takes := takes_tools(agent)) is not None:
        tools = own_tools(pipe, takes.own_tools)
        takes.take_tools(tools)
        isolated.take_tools(tools)
    budgets = Budgets(pipe) if settings.budget.of_users or settings.budget.of_all else None
    titling = Titling(pipe, model, budgets) if settings.titles else None
    if titling is not None:
        stack.push_async_callback(titling.close)
    return TurnParts(
        pipe,
        agent,
        isolated,
        worker,
        model,
        context=ContextBuilder(settings, pipe.store) if wants_context(agent) else None,
        titles=titling,
        budgets=budgets,
        typing=TypingIndicator(senders),
    )

"""What a worker process runs turns with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.pipeline import Pipeline
from shared.session_key import MAIN, agent_of
from workers.agents.contract import Agent, Asks, Missing
from workers.delivery.publish import Publisher
from workers.side.budget import Budgets
from workers.side.context import Briefing
from workers.side.titles import Titling
from workers.turn.lifetime import Lifetime


@dataclass(slots=True)
class Runner:
    """The agent of a deployment, or one of several, with all that goes with its turns."""

    pipe: Pipeline
    agent: Agent
    apart: Agent  # the same agent, each turn in a process of its own
    worker: str
    asks: Asks | None = None  # the model for questions aside, where the agent has one
    briefing: Briefing | None = None  # what turns are told of where they run, where the agent wants it
    titling: Titling | None = None
    budgets: Budgets | None = None  # where one is set
    others: Mapping[str, Runner] = field(default_factory=dict)  # for the keys of further agents, by name
    publisher: Publisher = None  # type: ignore[assignment]  # by default one that leaves every reply to its queue
    lifetime: Lifetime = field(init=False)

    def __post_init__(self) -> None:
        self.publisher = self.publisher or Publisher(self.pipe.deliveries)
        self.lifetime = Lifetime(self.pipe)

    def of(self, session_key: str) -> Runner:
        """The runner of a key's agent. One that the settings no longer name answers nothing: another must not."""
        name = agent_of(session_key)
        if name == MAIN:
            return self
        return self.others.get(name) or Runner(self.pipe, Missing(name), Missing(name), self.worker)

"""What an agent may offer besides answering turns. Each capability is a Protocol; an agent has it by having its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

from shared.messages import Entry
from shared.value import value


@value
class Answer:
    """What a model said to one request, and what it cost (see `usage` in workers/agents/llm.py)."""

    text: str
    reasoning: str
    usage: Mapping[str, Any]
    instead_of: str = ""  # the model that was to answer and failed, where another did
    marks: Mapping[str, Any] = field(default_factory=dict)  # what else a row of it keeps: see shared/context/marks.py


@runtime_checkable
class Asks(Protocol):
    """Answers questions aside: for titles, summaries, and what is worth remembering."""

    async def ask(self, rows: Sequence[Entry], system_prompt: str) -> Answer:
        """One request outside of any turn. Raises what `run` raises."""


@runtime_checkable
class WantsContext(Protocol):
    """May use `Turn.context`. It is built only for agents that say so: building it for others would be wasted work."""

    wants_context: bool


@runtime_checkable
class KnowsItsWindow(Protocol):
    """Knows how much its model reads at once."""

    def context_tokens(self, model: str = "") -> int | None:
        """The window of that model, or of the agent's own, in tokens; None where nobody says."""


@runtime_checkable
class TakesTools(Protocol):
    """Calls tools that Keyturn offers, beside those of its own."""

    own_tools: Sequence[str]
    """The families of tools that it is to be given."""

    def take_tools(self, tools: Sequence[Any]) -> None:
        """Offer these tools from now on. Called once, before the first turn."""


@runtime_checkable
class TakesAdmission(Protocol):
    """Asks providers of models, and lets itself be told when it may."""

    def take_admission(self, admission: Any) -> None:
        """Ask this `ProviderAdmission` before each request from now on. Called once, before the first turn."""


class Adapter:
    """An agent made of something else, whose capabilities it has."""

    __slots__ = ("original",)

    def __init__(self, original: object) -> None:
        self.original = original


def asks(agent: object) -> Asks | None:
    """The agent as one that can be asked aside; None where it has no model."""
    offered = _offered_by(agent)
    return offered if isinstance(offered, Asks) else None


def wants_context(agent: object) -> bool:
    offered = _offered_by(agent)
    return isinstance(offered, WantsContext) and offered.wants_context


def context_tokens(agent: object, model: str = "") -> int | None:
    """How much the agent's model reads at once, where that is known."""
    offered = _offered_by(agent)
    return offered.context_tokens(model) if isinstance(offered, KnowsItsWindow) else None


def takes_tools(agent: object) -> TakesTools | None:
    """The agent as one that wants tools of Keyturn's; None where it wants none."""
    offered = _offered_by(agent)
    return offered if isinstance(offered, TakesTools) and offered.own_tools else None


def takes_admission(agent: object) -> TakesAdmission | None:
    """The agent as one whose requests to providers can be limited; None where it makes none that we know of."""
    offered = _offered_by(agent)
    return offered if isinstance(offered, TakesAdmission) else None


def _offered_by(agent: object) -> object:
    return agent.original if isinstance(agent, Adapter) else agent

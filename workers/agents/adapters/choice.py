"""Which adapter an object wants, by the library that its type comes from. No library is imported to find that out."""

from __future__ import annotations

from typing import Any

from shared.errors import ConfigurationError
from workers.agents.contract import Agent


def of_library(target: Any) -> Agent | None:
    """The object as an Agent, where it is one of a library that we know; None otherwise. A ConfigurationError where our
    adapter does not work with what is installed."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(target).__mro__}
    try:
        if ("pydantic_ai", "AbstractAgent") in kinds:
            from workers.agents.adapters.pydantic_ai import PydanticAgent

            return PydanticAgent(target)
        if ("agents", "AgentBase") in kinds:
            from workers.agents.adapters.openai_agents import OpenAIAgent

            return OpenAIAgent(target)
        if ("langgraph", "Pregel") in kinds:
            from workers.agents.adapters.langgraph import GraphAgent

            return GraphAgent(target)
    except ImportError as error:
        raise ConfigurationError(f"AGENT: {type(target).__module__} cannot be used here: {error}") from None
    return None

"""A pydantic-ai agent with a tool and the history of its conversation, on any OpenAI-compatible server.

Start it in this directory:

    SHOP_MODEL=some-model SHOP_URL=http://localhost:11434/v1 SHOP_KEY=x ../../run up --agent tool_agent:ShopAgent
"""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from keyturn import Entry, Reply, Result, Turn


def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


class ShopAgent:
    """Keyturn makes one of these per worker process and calls `run` for every turn, many at the same time."""

    def __init__(self) -> None:
        provider = OpenAIProvider(base_url=os.environ["SHOP_URL"], api_key=os.environ["SHOP_KEY"])
        model = OpenAIChatModel(os.environ["SHOP_MODEL"], provider=provider)
        self._agent = Agent(model, instructions="You answer for a shop. Be brief.", tools=[opening_hours])

    async def run(self, turn: Turn) -> Result:
        """Answer the mail of a turn. What is returned is committed once, however often the turn had to be repeated."""
        said = "\n".join(inbound.text for inbound in turn.mail)
        earlier = [_as_model_message(entry) for entry in turn.history if entry.role in ("user", "assistant")]
        answer = await self._agent.run(said, message_history=earlier)
        return Result(entries=(Entry("assistant", answer.output),), replies=(Reply(answer.output),))


def _as_model_message(entry: Entry) -> ModelMessage:
    if entry.role == "user":
        return ModelRequest(parts=[UserPromptPart(entry.text)])
    return ModelResponse(parts=[TextPart(entry.text)])

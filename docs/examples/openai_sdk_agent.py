"""An agent of the OpenAI Agents SDK with a tool, on any OpenAI-compatible server.

Install the SDK first: `../../run install openai-agents`. Start it in this directory:

    SHOP_MODEL=some-model SHOP_URL=http://localhost:11434/v1 SHOP_KEY=x ../../run up --agent openai_sdk_agent:agent
"""

from __future__ import annotations

import os

from agents import Agent, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ["SHOP_URL"], api_key=os.environ["SHOP_KEY"])


@function_tool
def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


agent = Agent(
    "shop",
    instructions="You answer for a shop. Be brief.",
    model=OpenAIChatCompletionsModel(os.environ["SHOP_MODEL"], client),
    tools=[opening_hours],
)

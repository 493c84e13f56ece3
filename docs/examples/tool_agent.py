"""A pydantic-ai agent with a tool, on any OpenAI-compatible server. Keyturn shows it the history of its conversation.

Start it in this directory:

    SHOP_MODEL=some-model SHOP_URL=http://localhost:11434/v1 SHOP_KEY=x ../../run up --agent tool_agent:agent
"""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["SHOP_URL"], api_key=os.environ["SHOP_KEY"])
agent = Agent(
    OpenAIChatModel(os.environ["SHOP_MODEL"], provider=provider), instructions="You answer for a shop. Be brief."
)


@agent.tool_plain
def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"

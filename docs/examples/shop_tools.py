"""Tools for the `llm` agent: functions that the model may call.

Start it in this directory, with any OpenAI-compatible server:

    KEYTURN_LLM__MODEL=some-model KEYTURN_LLM__BASE_URL=http://localhost:11434/v1 KEYTURN_LLM__TOOLS=shop_tools \\
        ../../run up --agent llm
"""

from __future__ import annotations

from keyturn import CallContext, tool

orders: dict[str, str] = {}  # a real shop asks its database


@tool(effect="read")
def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


@tool(effect="keyed")
async def order(item: str, context: CallContext, count: int = 1) -> str:
    """Order an item for the user."""
    orders[context.key] = f"{count} x {item}"  # the same key when the same call is tried again: one order
    return f"ordered: {orders[context.key]}"

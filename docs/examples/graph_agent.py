"""A LangGraph graph: a model that may call a tool, on any OpenAI-compatible server.

Install LangGraph first: `../../run install langgraph`. Start it in this directory:

    SHOP_MODEL=some-model SHOP_URL=http://localhost:11434/v1 SHOP_KEY=x ../../run up --agent graph_agent:graph
"""

from __future__ import annotations

import json
import os
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage, convert_to_openai_messages
from langgraph.graph import END, START, MessagesState, StateGraph
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ["SHOP_URL"], api_key=os.environ["SHOP_KEY"])
HOURS: Any = {
    "type": "function",
    "function": {
        "name": "opening_hours",
        "description": "Say when the shop is open on a day of the week.",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
    },
}


async def ask_model(state: MessagesState) -> dict[str, Any]:
    messages: Any = convert_to_openai_messages(state["messages"])
    answer = await client.chat.completions.create(model=os.environ["SHOP_MODEL"], messages=messages, tools=[HOURS])
    said, used = answer.choices[0].message, answer.usage
    calls = [
        {"id": call.id, "name": call.function.name, "args": json.loads(call.function.arguments)}
        for call in said.tool_calls or ()
        if call.type == "function"
    ]
    usage = (
        {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens, "total_tokens": used.total_tokens}
        if used
        else None
    )
    return {"messages": [AIMessage(said.content or "", tool_calls=calls, usage_metadata=usage)]}


async def look_up(state: MessagesState) -> dict[str, Any]:
    answers = []
    for call in state["messages"][-1].tool_calls:
        hours = "closed" if call["args"]["day"].lower() == "sunday" else "9 to 17"
        answers.append(ToolMessage(hours, tool_call_id=call["id"]))
    return {"messages": answers}


def next_step(state: MessagesState) -> str:
    return "look_up" if state["messages"][-1].tool_calls else END


builder = StateGraph(MessagesState)
builder.add_node("ask_model", ask_model)
builder.add_node("look_up", look_up)
builder.add_edge(START, "ask_model")
builder.add_conditional_edges("ask_model", next_step)
builder.add_edge("look_up", "ask_model")
graph = builder.compile()

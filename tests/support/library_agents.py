"""The same agent in three libraries, for the adapters' tests: it answers for a shop, and has a tool that says its hours."""

from __future__ import annotations

import json
from typing import Any

from agents import Agent as SdkAgent
from agents import OpenAIChatCompletionsModel, function_tool
from langchain_core.messages import AIMessage, ToolMessage, convert_to_openai_messages
from langgraph.graph import END, START, MessagesState, StateGraph
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.openai import KEY, MODEL


def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    if day == "never":
        raise ValueError("no such day")
    return "closed" if day == "Sunday" else "9 to 17"


def pydantic_ai(url: str) -> PydanticAgent[None, str]:
    client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
    return PydanticAgent(model, instructions="Be brief.", tools=[opening_hours])


def openai_agents(url: str) -> SdkAgent[None]:
    client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
    model = OpenAIChatCompletionsModel(MODEL, client)
    return SdkAgent("shop", instructions="Be brief.", model=model, tools=[function_tool(opening_hours)])


def langgraph(url: str, checkpointer: Any = None) -> Any:
    client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
    parameters = {"type": "object", "properties": {"day": {"type": "string"}}}
    hours: Any = {"type": "function", "function": {"name": "opening_hours", "parameters": parameters}}

    async def ask(state: MessagesState) -> dict[str, Any]:
        messages: Any = convert_to_openai_messages(state["messages"])
        answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=[hours])
        said, used = answer.choices[0].message, answer.usage
        assert used is not None
        calls = [
            {"id": call.id, "name": call.function.name, "args": json.loads(call.function.arguments)}
            for call in said.tool_calls or ()
            if call.type == "function"
        ]
        counted = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}
        usage: Any = {**counted, "total_tokens": used.total_tokens}
        return {"messages": [AIMessage(said.content or "", tool_calls=calls, usage_metadata=usage)]}

    async def look_up(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        return {
            "messages": [
                ToolMessage(opening_hours(**call["args"]), tool_call_id=call["id"]) for call in last.tool_calls
            ]
        }

    def next_step(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "look_up" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("look_up", look_up)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", next_step)
    builder.add_edge("look_up", "ask")
    return builder.compile(checkpointer=checkpointer)

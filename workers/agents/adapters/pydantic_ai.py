"""A `pydantic_ai.Agent`. Its own tools, instructions and limits hold; what its providers' errors become is the table in
workers/agents/llm.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import exceptions as failures
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolResultEvent, UserPromptPart

from shared.agent.events import Call, Delta, Event, Thought
from shared.agent.turn import Turn
from workers.agents.adapters.said import Transcribed, as_text, asked
from workers.agents.model.direct import classified
from workers.agents.model.direct_messages import messages, piece_of, reasoning_of
from workers.agents.model.prices import Tokens
from workers.agents.model.usage import usage_of


class PydanticAgent:
    """Runs the agent with the conversation so far. The agent's `deps` are None."""

    wants_context = True

    def __init__(self, original: AbstractAgent[Any, Any]) -> None:
        self._original = original

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said, prompt = Transcribed(), asked(turn)
        *earlier, last = messages(prompt.rows, None)
        mail = last.parts[0].content if isinstance(last.parts[0], UserPromptPart) else None
        try:
            told = prompt.instructions or None
            async with self._original.iter(mail, message_history=earlier, instructions=told) as run:
                async for node in run:
                    if self._original.is_model_request_node(node):
                        async with node.stream(run.ctx) as stream:
                            async for event in stream:
                                if (piece := piece_of(event)) is not None:
                                    yield Thought(piece.thought) if piece.thought else Delta(piece.text)
                    elif self._original.is_call_tools_node(node):
                        for one in _response(said, node.model_response):
                            yield one
                        async with node.stream(run.ctx) as called:
                            async for event in called:
                                if isinstance(event, ToolResultEvent):
                                    part = event.part
                                    text, ok = part.model_response_str(), part.outcome == "success"
                                    for one in said.result(event.tool_call_id, text, ok=ok):
                                        yield one
            output = run.result.output if run.result is not None else None
        except (failures.AgentRunError, failures.UserError) as error:
            raise classified(error, "pydantic-ai") from None
        for one in said.end(as_text(output)):
            yield one


def _response(said: Transcribed, response: ModelResponse) -> list[Event]:
    calls = [
        Call(part.tool_call_id, part.tool_name, part.args_as_json_str())
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    used = response.usage
    tokens = Tokens(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
    usage = usage_of(response.model_name or "unknown", tokens, used.cost) if tokens.input + tokens.output else {}
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    return said.response(text, calls, usage, reasoning_of(response))

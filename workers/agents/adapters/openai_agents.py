"""An agent of the OpenAI Agents SDK. Its own tools, handoffs and guardrails hold. Nothing is sent to its tracing service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import agents
import openai

from shared.agent.events import Call, Delta, Event
from shared.agent.turn import Turn
from shared.context.marks import TOOL_CALL_ID, calls
from shared.errors import Outage, Permanent, PipelineError, Transient
from shared.messages import Entry
from workers.agents.adapters.said import Transcribed, as_text, asked
from workers.agents.model.prices import Tokens
from workers.agents.model.usage import usage_of
from workers.agents.openai_format.refusals import refused


class OpenAIAgent:
    """Runs the agent with the conversation so far. The agent's `context` is None."""

    wants_context = True

    def __init__(self, original: agents.Agent[Any]) -> None:
        self._original = original

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said, prompt = Transcribed(), asked(turn)
        told = [{"role": "system", "content": prompt.instructions}] if prompt.instructions else []
        items: Any = [*told, *_items(prompt.rows)]
        run = agents.Runner.run_streamed(
            self._original, items, run_config=agents.RunConfig(tracing_disabled=True, workflow_name="keyturn")
        )
        try:
            async for event in run.stream_events():
                for one in _events(said, event):
                    yield one
            output = as_text(run.final_output)
        except (openai.OpenAIError, agents.AgentsException) as error:
            raise classified(error) from None
        finally:
            run.cancel()
        for one in said.end(output):
            yield one


def _events(said: Transcribed, event: Any) -> list[Event]:
    if event.type == "raw_response_event":
        match event.data.type:
            case "response.output_text.delta":
                return [Delta(event.data.delta)]
            case "response.completed":
                return _response(said, event.data.response)
    if event.type == "run_item_stream_event":
        raw = event.item.raw_item
        id = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
        if isinstance(id, str) and event.item.type in ("tool_call_output_item", "handoff_output_item"):
            output = getattr(event.item, "output", None)
            return said.result(id, as_text(output if output is not None else raw))
    return []


def _response(said: Transcribed, response: Any) -> list[Event]:
    texts = [
        part.text
        for item in response.output
        if item.type == "message"
        for part in item.content
        if part.type == "output_text"
    ]
    made = [Call(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    usage: dict[str, Any] = {}
    if (used := response.usage) is not None and used.input_tokens + used.output_tokens > 0:
        details = getattr(used, "input_tokens_details", None)
        tokens = Tokens(used.input_tokens, used.output_tokens, getattr(details, "cached_tokens", 0) or 0)
        usage = usage_of(str(response.model or "unknown"), tokens, None)
    return said.response("".join(texts), made, usage)


def _items(rows: Sequence[Entry]) -> list[dict[str, Any]]:
    """The rows in the form that the SDK reads."""
    items: list[dict[str, Any]] = []
    for row in rows:
        if row.role == "tool":
            items.append({"type": "function_call_output", "call_id": row.data[TOOL_CALL_ID], "output": row.text})
            continue
        if row.text:
            items.append({"role": row.role, "content": row.text})
        items += [
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["name"],
                "arguments": call.get("arguments") or "{}",
            }
            for call in calls(row)
        ]
    return items


def classified(error: Exception) -> PipelineError:
    """The decision that an error asks for: the table in workers/agents/llm.py."""
    if isinstance(error, openai.APIStatusError):
        return refused(error.status_code, error.response.headers, error.response.content, "openai")
    if isinstance(error, openai.APITimeoutError):
        return Transient("the model did not answer in time")
    if isinstance(error, openai.APIConnectionError):
        return Outage("model: no connection, or a cut one", provider="openai")
    what = f"the agent: {type(error).__name__}"
    lost = agents.UserError | agents.InputGuardrailTripwireTriggered | agents.OutputGuardrailTripwireTriggered
    return Permanent(what) if isinstance(error, lost) else Transient(what)

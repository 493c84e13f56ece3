"""A LangGraph graph whose state has `messages`. Nodes may do what they like; messages that they add are what it says.

A graph with a checkpointer keeps the conversation itself, by the session's id: it is given the new mail only, under ids
that are the same on every attempt. Any other graph is given the history too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.pregel import Pregel

from shared.agent.events import Call, Delta, Event
from shared.agent.turn import Turn
from shared.codec import encode_text
from shared.context.marks import TOOL_CALL_ID, calls
from shared.errors import ConfigurationError, Permanent, Transient
from shared.messages import Entry
from workers.agents.adapters.said import Transcribed, asked
from workers.agents.model.prices import Tokens
from workers.agents.model.usage import usage_of

MESSAGES = "messages"
INTERRUPT = "__interrupt__"
CANNOT_ASK = "I would have to ask you something first, which this agent cannot do here yet."
MODES: Any = [MESSAGES, "updates"]


class GraphAgent:
    """Runs the graph."""

    def __init__(self, original: Pregel[Any, Any, Any, Any]) -> None:
        self._original = original
        if MESSAGES not in original.channels:
            raise ConfigurationError("AGENT: a graph needs the key messages in its state, as MessagesState has it")

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said, graph = Transcribed(), self._original
        rows = asked(turn).rows
        new = rows[-len(turn.mail) :] if graph.checkpointer else rows
        mail_ids = [inbound.id for inbound in turn.mail]
        given = list(_messages(new, mail_ids))
        config: Any = {"configurable": {"thread_id": turn.session_id}}
        try:
            async for mode, data in graph.astream({MESSAGES: given}, config, stream_mode=MODES):
                for event in _pieces(data) if mode == MESSAGES else _updates(said, data):
                    yield event
        except GraphRecursionError:
            raise Transient("the graph took more steps than its limit") from None
        for event in said.end():
            yield event


def _pieces(data: Any) -> list[Event]:
    message, _ = data
    text = message.text if isinstance(message, AIMessage) else ""
    return [Delta(str(text))] if text else []


def _updates(said: Transcribed, data: Any) -> Iterator[Event]:
    if INTERRUPT in data:
        raise Permanent("the graph interrupted itself to ask a person, which cannot be done here yet", CANNOT_ASK)
    for update in data.values():
        added = update.get(MESSAGES, ()) if isinstance(update, Mapping) else ()
        for message in added if isinstance(added, list | tuple) else (added,):
            if isinstance(message, AIMessage):
                yield from _response(said, message)
            elif isinstance(message, ToolMessage):
                yield from said.result(message.tool_call_id, str(message.text), ok=message.status != "error")


def _response(said: Transcribed, message: AIMessage) -> list[Event]:
    made = [Call(call["id"] or call["name"], call["name"], encode_text(call["args"])) for call in message.tool_calls]
    usage: dict[str, Any] = {}
    if (used := message.usage_metadata) is not None and used["input_tokens"] + used["output_tokens"] > 0:
        cached = used.get("input_token_details", {}).get("cache_read", 0)
        model = str(message.response_metadata.get("model_name") or "unknown")
        usage = usage_of(model, Tokens(used["input_tokens"], used["output_tokens"], cached), None)
    return said.response(str(message.text), made, usage)


def _messages(rows: Sequence[Entry], mail_ids: Sequence[str]) -> Iterator[AnyMessage]:
    ids = [None] * (len(rows) - len(mail_ids)) + list(mail_ids)
    for row, id in zip(rows, ids, strict=True):
        yield _message(row, id)


def _message(row: Entry, id: str | None) -> AnyMessage:
    if row.role == "tool":
        return ToolMessage(row.text, tool_call_id=row.data[TOOL_CALL_ID])
    if row.role == "assistant":
        made = [{"id": call["id"], "name": call["name"], "args": _arguments(call)} for call in calls(row)]
        return AIMessage(row.text, tool_calls=made)
    return HumanMessage(row.text, id=id)


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    written = call.get("arguments")
    if isinstance(written, str):
        with suppress(orjson.JSONDecodeError):
            written = orjson.loads(written)
    return written if isinstance(written, dict) else {}

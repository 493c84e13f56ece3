"""A LangGraph graph whose state has `messages`. Nodes may do what they like; messages that they add are what it says.

A graph with a checkpointer keeps the conversation itself, by the session's id: it is given the new mail only, under ids
that are the same on every attempt. Any other graph is given the history too.

A graph that interrupts itself parks its run: the question is an `Ask`, and the checkpointer keeps where the graph was. The checkpoint
names the run, which decides what a turn does with what it finds on the thread:

| the thread is | the turn |
|---|---|
| interrupted by this run, and the answer is there | goes on with it |
| interrupted by this run, and there is no answer yet: an attempt died before its commit | asks the same question |
| behind the question that was answered: an attempt died after it | goes on from there, or says what was said |
| interrupted by another run that still waits for a person | leaves it alone: it runs on a thread of its own, with the history |
| interrupted by a run that nobody waits for any more | begins anew on it, as after any end |
| interrupted by this run, and nobody answered in time | leaves it there and says so: silence is no answer to give to a graph |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot

from shared.agent.events import Call, Delta, Event
from shared.agent.turn import Turn
from shared.codec import encode_text
from shared.context.marks import TOOL_CALL_ID, calls
from shared.errors import ConfigurationError, Permanent, Transient
from shared.messages import Entry
from shared.value import value
from workers.agents.adapters.langgraph_questions import ask_of, resume_values
from workers.agents.adapters.said import Transcribed, asked
from workers.agents.model.prices import Tokens
from workers.agents.model.usage import usage_of

MESSAGES = "messages"
INTERRUPT = "__interrupt__"
RUN = "keyturn_run"  # in the metadata of checkpoints: whose they are
CANNOT_ASK = "I would have to ask you something first, which this agent cannot do here."
NOBODY_ANSWERED = "Nobody answered my question in time, so I did not go on with it."
FORGOTTEN = "I no longer know what I asked you about. Please say again what you want."
MODES: Any = [MESSAGES, "updates"]


@value
class GraphStart:
    """How a turn begins: what the graph is given on which thread; or without running it, what it has asked or said already."""

    config: Any
    given: Any = None
    is_over: bool = False  # the graph does not run
    open_interrupts: tuple[Interrupt[Any], ...] = ()
    said: tuple[AnyMessage, ...] = ()


class GraphAgent:
    """Runs the graph."""

    def __init__(self, original: Pregel[Any, Any, Any, Any]) -> None:
        self._original = original
        if MESSAGES not in original.channels:
            raise ConfigurationError("AGENT: a graph needs the key messages in its state, as MessagesState has it")

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        said, graph = Transcribed(), self._original
        start = await self._start(turn) if graph.checkpointer else GraphStart(_config(turn), _mail(turn, whole=True))
        found = {one.id: one for one in start.open_interrupts}
        for event in _heard(said, start.said):
            yield event
        try:
            if not start.is_over:
                async for mode, data in graph.astream(start.given, start.config, stream_mode=MODES):
                    found |= _interrupts(data)
                    for event in _pieces(data) if mode == MESSAGES else _updates(said, data):
                        yield event
        except GraphRecursionError:
            raise Transient("the graph took more steps than its limit") from None
        if found and not graph.checkpointer:
            raise Permanent("the graph interrupted itself to ask a person, which needs a checkpointer", CANNOT_ASK)
        for event in [*said.left_open(), *map(ask_of, found.values())] if found else said.end():
            yield event

    async def _start(self, turn: Turn) -> GraphStart:
        """What a graph with a checkpointer is to do, by the table above."""
        if any(said.is_expired for said in turn.answers.values()):
            return GraphStart(_config(turn), is_over=True, said=(AIMessage(NOBODY_ANSWERED),))
        graph, config, is_aside = self._original, _config(turn), False
        state = await graph.aget_state(config)
        is_waiting = bool(state.interrupts) and _run_of(state) in turn.asking
        if _run_of(state) != turn.run and (is_waiting or turn.answers):
            config, is_aside = _config(turn, aside=True), True
            state = await graph.aget_state(config)
        is_ours = _run_of(state) == turn.run
        if is_ours and state.interrupts:
            if values := resume_values(state.interrupts, turn.answers):
                return GraphStart(config, Command(resume=values))
            return GraphStart(config, is_over=True, open_interrupts=state.interrupts)
        if not turn.answers:
            return GraphStart(config, _mail(turn, whole=is_aside and not is_ours))
        if not is_ours:
            raise Permanent("the graph's checkpointer does not know the run that was answered", FORGOTTEN)
        if state.next:
            return GraphStart(config)
        return GraphStart(config, is_over=True, said=_since_the_mail(state))


def _pieces(data: Any) -> list[Event]:
    message, _ = data
    text = message.text if isinstance(message, AIMessage) else ""
    return [Delta(str(text))] if text else []


def _interrupts(data: Any) -> dict[str, Interrupt[Any]]:
    return {one.id: one for one in data.get(INTERRUPT, ())} if isinstance(data, Mapping) else {}


def _updates(said: Transcribed, data: Any) -> Iterator[Event]:
    for update in data.values():
        added = update.get(MESSAGES, ()) if isinstance(update, Mapping) else ()
        yield from _heard(said, added if isinstance(added, list | tuple) else (added,))


def _heard(said: Transcribed, added: Iterable[Any]) -> Iterator[Event]:
    for message in added:
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


def _config(turn: Turn, *, aside: bool = False) -> Any:
    """The thread of the session, or one that the run has for itself. Checkpoints keep the run's name."""
    thread = f"{turn.session_id}/{turn.run}" if aside else turn.session_id
    return {"configurable": {"thread_id": thread}, "metadata": {RUN: turn.run}}


def _run_of(state: StateSnapshot) -> str | None:
    """The run that wrote the thread's last checkpoint; None where there is none, or it is not one of ours."""
    found: Mapping[str, Any] = state.metadata or {}
    return found.get(RUN)


def _mail(turn: Turn, *, whole: bool) -> dict[str, list[AnyMessage]]:
    """The mail as the graph's input, `whole` with the history before it."""
    rows = asked(turn).rows
    new = rows if whole else rows[-len(turn.mail) :]
    return {MESSAGES: list(_messages(new, [inbound.id for inbound in turn.mail]))}


def _since_the_mail(state: StateSnapshot) -> tuple[AnyMessage, ...]:
    """What the graph has said since somebody last spoke to it."""
    found: list[AnyMessage] = state.values.get(MESSAGES) or []
    last = next((n for n in range(len(found) - 1, -1, -1) if isinstance(found[n], HumanMessage)), -1)
    return tuple(found[last + 1 :])


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

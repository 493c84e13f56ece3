"""What an agent of another library said, as our events: rows as they become final, and each tool call begun and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic_core import to_json

from shared.agent.events import Began, Call, Done, Ended, Event, Row
from shared.agent.turn import Turn
from shared.codec import storable
from shared.context.marks import NAME, REASONING, TOOL_CALL_ID, TOOL_CALLS, USAGE
from shared.messages import Entry, Reply
from workers.agents.model.contract import Prompt
from workers.agents.model.conversation import ModelConversation

NO_RESULT = "(No result: the agent ended before this call had one.)"


class Transcribed:
    """The events of one turn. The answer is the last text of a response without tool calls, unless `answer` names another."""

    def __init__(self) -> None:
        self._open: dict[str, Call] = {}
        self._text = ""

    def response(
        self, text: str, calls: Sequence[Call] = (), usage: Mapping[str, Any] | None = None, reasoning: str = ""
    ) -> list[Event]:
        """A model has answered: its row, and the calls that begin now."""
        made = [{"id": call.id, "name": call.name, "arguments": _arguments(call.arguments)} for call in calls]
        data = {USAGE: dict(usage or {}), REASONING: reasoning, TOOL_CALLS: made}
        text = storable(text.strip())
        if not calls:
            self._text = text
        if not text and not calls and not usage:
            return []
        self._open |= {call.id: call for call in calls}
        row = Entry("assistant", text, data={name: value for name, value in data.items() if value})
        return [Row(row), *map(Began, calls)]

    def result(self, call_id: str, text: str, *, ok: bool = True) -> list[Event]:
        """A call has a result. One that no response of this turn made is left out."""
        call = self._open.pop(call_id, None)
        if call is None:
            return []
        text = storable(text)
        row = Entry("tool", text, data={TOOL_CALL_ID: call.id, NAME: call.name})
        return [Ended(call, ok, text), Row(row)]

    def left_open(self) -> list[Event]:
        """The calls that have no result, ended without one."""
        return [event for id in list(self._open) for event in self.result(id, NO_RESULT, ok=False)]

    def end(self, answer: str | None = None) -> list[Event]:
        """The agent has ended. Every call has a result then: a provider refuses a history with one that has none."""
        closing = self.left_open()
        text = self._text if answer is None else storable(answer.strip())
        if text and text != self._text:
            closing.append(Row(Entry("assistant", text)))
        return [*closing, Done((Reply(text),) if text else ())]


def asked(turn: Turn) -> Prompt:
    """What the agent is shown: the window of the history and the mail as rows, and what is known of the conversation."""
    return ModelConversation(turn, "").prompt()


def as_text(output: Any) -> str:
    """An output of any type as text: a string as it is, anything else as JSON."""
    if output is None:
        return ""
    return output if isinstance(output, str) else to_json(output, fallback=str).decode()


def _arguments(written: str) -> str:
    """The arguments as JSON that providers accept in a history."""
    try:
        return written if isinstance(orjson.loads(written), dict) else "{}"
    except orjson.JSONDecodeError:
        return "{}"

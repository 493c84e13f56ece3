"""Puts the chunks of one answer together: text, thoughts, tool calls by their index, usage, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.agent.events import Call
from workers.agents.model.contract import Piece
from workers.agents.model.prices import Tokens
from workers.agents.openai_format.thoughts import TaggedThoughts

DONE: Mapping[str, Any] = {"done": True}  # the chunk for the end of a stream, `[DONE]`
REASONING_FIELDS = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _OpenCall:
    id: str = ""
    name: str = ""
    arguments: str = ""


class Assembled:
    """An answer as far as it has come. `finish` is None until the provider says how it ended."""

    __slots__ = ("_calls", "_tags", "_text", "_thoughts", "finish", "reasoning_field", "tokens")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._tags = TaggedThoughts()
        self.finish: str | None = None
        self.reasoning_field = ""  # where thoughts came in; empty where they stood in the text
        self.tokens: Tokens | None = None

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts)

    @property
    def calls(self) -> tuple[Call, ...]:
        """In the order of their index. A call without an id gets one that is unique in this answer."""
        return tuple(
            Call(call.id or f"call_{index}", call.name, call.arguments or "{}")
            for index, call in sorted(self._calls.items())
        )

    @property
    def arguments(self) -> str:
        """What the model wrote besides text, for an estimate of its length."""
        return "".join(call.name + call.arguments for call in self._calls.values())

    def take(self, chunks: list[Mapping[str, Any]]) -> Piece:
        """Fold chunks in. All that arrived together is one piece."""
        said = [self._fold(chunk) for chunk in chunks]
        text, thought = "".join([text for text, _ in said]), "".join([thought for _, thought in said])
        shown, tagged = self._tags.split(text) if text else ("", "")
        return self._keep(shown, thought + tagged)

    def end(self) -> Piece:
        """Nothing more comes: text that was held back because it might have become a tag is text."""
        return self._keep(*self._tags.end())

    def _keep(self, text: str, thought: str) -> Piece:
        self._text.append(text)
        self._thoughts.append(thought)
        return Piece(text, thought, self.finish is not None)

    def _fold(self, chunk: Mapping[str, Any]) -> tuple[str, str]:
        """The text and the thought in a chunk; everything else of it is kept."""
        if chunk is DONE:
            self.finish = self.finish or "stop"
            return "", ""
        if isinstance(used := chunk.get("usage"), dict):
            self.tokens = _tokens(used) or self.tokens
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index", 0) != 0:
            return "", ""
        if isinstance(finish := choice.get("finish_reason"), str) and finish:
            self.finish = finish
        delta = choice.get("delta") or choice.get("message")  # `message`: a server that does not stream
        if not isinstance(delta, dict):
            return "", ""
        for field in REASONING_FIELDS:  # some servers say the same in both: the first counts
            if not self.reasoning_field and isinstance(delta.get(field), str) and delta[field]:
                self.reasoning_field = field
        thought = delta.get(self.reasoning_field)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            self._fold_call(position, call)
        content = delta.get("content") or delta.get("refusal")
        return content if isinstance(content, str) else "", thought if isinstance(thought, str) else ""

    def _fold_call(self, position: int, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        index = delta.get("index")
        call = self._calls.setdefault(index if isinstance(index, int) else position, _OpenCall())
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        if isinstance(id := delta.get("id"), str) and id:
            call.id = id
        if isinstance(name := function.get("name"), str) and name and name != call.name:
            call.name += name
        if isinstance(arguments := function.get("arguments"), str):
            call.arguments += arguments


def _tokens(used: Mapping[str, Any]) -> Tokens | None:
    asked, said = used.get("prompt_tokens"), used.get("completion_tokens")
    if not isinstance(asked, int) or not isinstance(said, int) or asked + said <= 0:
        return None
    details = used.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Tokens(asked, said, cached if isinstance(cached, int) else 0)

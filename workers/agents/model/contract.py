"""A language model as the agent sees it: a prompt goes in, pieces come out, and the whole response last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from shared.agent.events import Call
from shared.errors import Permanent, Transient
from shared.messages import Entry
from shared.value import value

TOO_LONG_NOTICE = "This conversation has become too long for me. Please start a new one, or send a shorter message."

USED_UP_NOTICE = "Sorry, I cannot answer: my quota at the service that I need is used up. Please tell whoever runs me."


@value
class ToolSpec:
    """A tool as a model is told of it. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@value
class Prompt:
    """One request: what the model is told first, the rows of the conversation, and the tools that it may call."""

    rows: Sequence[Entry]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()


@value
class Piece:
    """What has come since the last piece. `is_last`: the model has ended, and no more text follows."""

    text: str = ""
    thought: str = ""
    is_last: bool = False


@value
class Response:
    """All that a model said to one request. `is_cut`: it reached its length limit before it had ended."""

    text: str
    usage: Mapping[str, Any]
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    marks: Mapping[str, Any] = field(default_factory=dict)  # what else its row keeps: see shared/context/marks.py
    is_cut: bool = False
    is_filtered: bool = False  # the provider's content filter ended it


class Model(Protocol):
    """Raises what the table in workers/agents/llm.py says. A response is whole: a stream that was cut has none."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str:
        """Who answers, as errors and marks name it."""

    @property
    def context_window(self) -> int | None:
        """How many tokens it reads at once; None where nobody says."""

    def stream(self, prompt: Prompt) -> AsyncIterator[Piece | Response]:
        """Ask once. Pieces as they come, where the model streams, and the `Response` last."""


class ModelRefused(Permanent):
    """The provider will not answer this."""


class AccessRefused(ModelRefused):
    """The provider does not take the key, or has no such model. No other request would be answered either."""


class QuotaUsedUp(Permanent):
    """The provider wants money before it answers again. No other request would be answered either."""

    def __init__(self, what: str) -> None:
        super().__init__(what, USED_UP_NOTICE)


class TooLong(ModelRefused):
    """More than the model reads at once."""

    def __init__(self) -> None:
        super().__init__("the conversation is too long for the model", TOO_LONG_NOTICE)


class Unfinished(Transient):
    """The stream ended before the model did. `text` is what it had said: a part of an answer, and no answer."""

    def __init__(self, text: str) -> None:
        super().__init__("the model's answer ended in the middle")
        self.text = text

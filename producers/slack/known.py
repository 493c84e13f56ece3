"""What we know of Slack beside an event: who we are there, and what its ids stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from shared.value import value


@value
class SlackBot:
    """Who we are there, and how we answer."""

    user: str  # the id that mentions of us have
    id: str  # the id that our own messages have
    team: str
    name: str = "bot"
    opens_threads: bool = True  # in channels, under the message that is answered
    asks: tuple[str, ...] = ("/ask",)  # slash commands whose words alone are the message


@value
class SlackPlace:
    """A channel. `kind` is as in an Inbound."""

    kind: str
    name: str | None = None
    topic: str | None = None


@value
class SlackKnown:
    """Names and kinds that events do not carry, by id. What is missing is not known."""

    places: Mapping[str, SlackPlace] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)

"""Where a turn runs, in words for agents that want them (`wants_context`). Others cost nothing here.

The text is the same, byte for byte, from turn to turn, so that prompt caches hold. A topic that a platform names on some
messages only is remembered as a fact of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shared.context.prompt import Home, Surroundings, context_prompt
from shared.context.runtime import with_runtime
from shared.homes import homes_from
from shared.messages import Inbound, Session
from shared.redaction import open_redaction
from shared.session_key import SessionKey
from shared.settings import Settings
from shared.store import Store
from shared.store.facts import HOMES
from shared.value import value

TOPIC, MODEL = "topic", "model"  # facts of a session


@value
class Context:
    """What the agent is told, and the facts that the turn's commit should keep so that the next text is the same."""

    text: str
    facts: Mapping[tuple[str, str], str]


class ContextBuilder:
    """Writes down for a turn where it runs. Reads the home channels where they were not read with the session."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._store = store
        self._settings = settings
        self._around = Surroundings(
            settings.connected, redaction=open_redaction(settings), own_tools=settings.llm.own_tools
        )
        self._kept: Mapping[str, str] | None = None  # what /sethome kept, as it is in `_around`

    async def build(self, session_key: str, session: Session, inbound: Inbound) -> Context:
        """The context of a turn on this message. Nothing is written: the facts are kept by the turn's commit."""
        source, known = inbound.source, session.facts.get(TOPIC)
        remember = {(session.id, TOPIC): source.topic} if source.topic and source.topic != known else {}
        if not source.topic and known:
            source = replace(source, topic=known)
        told = session.prompt_facts
        around = self._with_homes(told.homes if told is not None else await self._store.facts.of(HOMES))
        prompt = context_prompt(source, SessionKey.parse(session_key), around)
        return Context(with_runtime(prompt, session.facts), remember)

    def _with_homes(self, kept: Mapping[str, str]) -> Surroundings:
        """The surroundings with these home channels, made anew only when /sethome has changed one."""
        if kept != self._kept:
            channels = homes_from(self._settings, kept)
            homes = tuple(Home(platform, home.address.chat, home.name) for platform, home in channels.items())
            self._around, self._kept = replace(self._around, homes=homes), kept
        return self._around

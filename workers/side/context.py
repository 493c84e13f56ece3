"""Where a turn runs, in words for agents that want them (`wants_context`). Others cost nothing here.

The text is the same, byte for byte, from turn to turn, so that prompt caches hold. A topic that a platform names on some
messages only is remembered as a fact of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import orjson

from shared.context.prompt import Home, Surroundings, context_prompt
from shared.context.runtime import with_runtime
from shared.messages import Inbound, Session, Source
from shared.redaction import open_redaction
from shared.session_key import SessionKey
from shared.settings import Settings
from shared.store import Store
from shared.value import value

HOMES = "homes"  # the scope of the facts that /sethome keeps
TOPIC, MODEL = "topic", "model"  # facts of a session


@value
class Context:
    """What the agent is told, and the facts that the turn's commit should keep so that the next text is the same."""

    text: str
    facts: Mapping[tuple[str, str], str]


class ContextBuilder:
    """Writes down for a turn where it runs. Costs a read of the home channels per turn, and nothing that grows."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._store = store
        self._settings = settings
        self._around = Surroundings(settings.connected, redaction=open_redaction(settings))

    async def build(self, session_key: str, session: Session, inbound: Inbound) -> Context:
        """The context of a turn on this message. Nothing is written: the facts are kept by the turn's commit."""
        source, known = inbound.source, session.facts.get(TOPIC)
        remember = {(session.id, TOPIC): source.topic} if source.topic and source.topic != known else {}
        if not source.topic and known:
            source = replace(source, topic=known)
        around = replace(self._around, homes=await homes(self._settings, self._store))
        prompt = context_prompt(source, SessionKey.parse(session_key), around)
        return Context(with_runtime(prompt, session.facts), remember)


async def homes(settings: Settings, store: Store) -> tuple[Home, ...]:
    """The home channel of each connected platform: what /sethome kept, else what the settings say."""
    kept = await store.facts.of(HOMES)
    found = []
    for platform in settings.connected:
        block = settings.platform(platform)
        if platform in kept:
            home = orjson.loads(kept[platform])
            found.append(Home(platform, home["chat"], home.get("name")))
        elif block is not None and block.home_channel:
            found.append(Home(platform, block.home_channel))
    return tuple(found)


def home_fact(source: Source) -> tuple[tuple[str, str], str]:
    """The fact that makes a chat its platform's home channel."""
    home = {"chat": source.chat, "name": source.chat_name, "thread": source.thread, "account": source.account}
    return (HOMES, source.platform), orjson.dumps(home).decode()

"""The slash commands: parsed once, here. A command runs as its key's turn, under the same lease and the same commit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.messages import Entry, Inbound, Session
from shared.pipeline import Pipeline
from shared.store import Store
from shared.store.transcript import NO_CHANGE, Change
from workers.agent import Asks

_COMMAND = re.compile(r"/([a-z][a-z0-9_-]{0,31})(?:@\w+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A command as somebody gave it, and the conversation it was given in."""

    name: str
    args: str
    inbound: Inbound
    session_key: str
    session: Session
    pipe: Pipeline
    asks: Asks | None = None  # the model for questions aside

    @property
    def store(self) -> Store:
        return self.pipe.store


@dataclass(frozen=True, slots=True)
class Answer:
    """Say this, and change the session so."""

    text: str
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class Again:
    """Run a turn on these words, with this history."""

    text: str
    history: tuple[Entry, ...]
    change: Change


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    help: str
    run: Callable[[Call], Awaitable[Answer | Again]]
    aliases: tuple[str, ...] = ()
    args: str = ""  # as help shows them; empty: it takes none


REGISTRY: dict[str, Command] = {}


def register(command: Command) -> None:
    for name in (command.name, *command.aliases):
        assert name not in REGISTRY, name
        REGISTRY[name] = command


def parse(text: str) -> tuple[str, str] | None:
    """The command's name and arguments, in any case, with or without @botname. None: this is for the agent."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match else None


async def run(call: Call) -> Answer | Again:
    """Do what was asked. An unknown command is answered, not given to the agent: it was not meant for it."""
    command = REGISTRY.get(call.name)
    if command is None:
        close = difflib.get_close_matches(call.name, REGISTRY, n=1)
        hint = f"Did you mean /{close[0]}?" if close else "Send /help for what I understand."
        return Answer(f"I do not know /{call.name}. {hint}")
    if call.args and not command.args:
        return Answer(f"/{command.name} takes no arguments.")
    return await command.run(call)


from workers.commands import about, lifetime, mending, search, usage  # noqa: E402, F401 (they register themselves)

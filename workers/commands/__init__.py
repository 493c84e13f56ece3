"""The slash commands: parsed once, here. A command runs as its key's turn, under the same lease and the same commit."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence

from shared.control import parse as parse
from shared.messages import Entry, Inbound, Media, Session
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.store import Store
from shared.store.change import NO_CHANGE, Change
from shared.value import value
from workers.agents.capabilities import Asks
from workers.side.budget import Budgets


@value
class CommandCall:
    """A command as somebody gave it, and the conversation it was given in."""

    name: str
    args: str
    inbound: Inbound
    session_key: str
    session: Session
    pipe: Pipeline
    asks: Asks | None = None  # the model for questions aside
    budgets: Budgets | None = None  # which it is asked within

    @property
    def store(self) -> Store:
        return self.pipe.store

    @property
    def key(self) -> SessionKey:
        """The conversation's key as a value."""
        return SessionKey.parse(self.session_key)


@value
class CommandAnswer:
    """Say this, and change the session so."""

    text: str
    change: Change = NO_CHANGE


def sorry(name: str) -> CommandAnswer:
    """What the chat is told of a command that failed."""
    return CommandAnswer(f"Sorry, /{name} did not work. Nothing was changed.")


@value
class Again:
    """Run a turn on these words, with this history."""

    text: str
    history: Sequence[Entry]
    change: Change
    media: tuple[Media, ...] = ()


@value
class GivenAnswer:
    """What somebody says to an open question: workers/turn/asking.py finds it and takes its run up."""

    which: str  # its number among the open ones, or its id; empty: the only one
    is_yes: bool | None = None  # None: the words say it
    words: str = ""


@value
class Instead:
    """Run an ordinary turn on these words."""

    text: str


ARGUMENTS_LIMIT = 256  # characters: what a person types, and what every statement of a database can look for
MANY = 10**9


def number(text: str) -> int | None:
    """A whole number as people write it, in the digits of any script; None where it is none. One of more than nine digits
    is MANY: nothing here is counted so far, and no database keeps every number."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits.isdecimal():
        return None
    return int(f"{sign}{digits}") if len(digits) < 10 else int(f"{sign}{MANY}")


@value
class Command:
    """A slash command. `run` may raise: the person is answered and nothing was changed."""

    name: str
    help: str  # empty: nobody is told of it
    run: Callable[[CommandCall], Awaitable[CommandAnswer | Again | GivenAnswer | Instead]]
    aliases: tuple[str, ...] = ()
    args: str = ""  # as help shows them; empty: it takes none
    admin: bool = False  # for admins only: it changes something for others than who gives it
    limit: int = ARGUMENTS_LIMIT  # characters of its arguments


REGISTRY: dict[str, Command] = {}


def register(command: Command) -> None:
    for name in (command.name, *command.aliases):
        assert name not in REGISTRY, name
        REGISTRY[name] = command


def known_to(call: CommandCall) -> dict[str, Command]:
    """The commands that the caller may give, by name and alias, with the deployment's own."""
    settings, source = call.pipe.settings, call.inbound.source
    everything = {**REGISTRY, **(custom(settings) if settings.commands else {})}
    return {n: c for n, c in everything.items() if may_give(settings, source, c.name, c.admin)}


async def run(call: CommandCall) -> CommandAnswer | Again | GivenAnswer | Instead:
    """Do what was asked. An unknown command is answered, not given to the agent: it was not meant for it."""
    known = known_to(call)
    command = known.get(call.name)
    if command is None and (refused := REGISTRY.get(call.name)) is not None:
        return CommandAnswer(f"/{refused.name} is {'for admins' if refused.admin else 'not switched on for you'} here.")
    if command is None:
        close = difflib.get_close_matches(call.name, [name for name, c in known.items() if c.help], n=1)
        hint = f"Did you mean /{close[0]}?" if close else "Send /help for what I understand."
        return CommandAnswer(f"I do not know /{call.name}. {hint}")
    if call.args and not command.args:
        return CommandAnswer(f"/{command.name} takes no arguments.")
    if len(call.args) > command.limit:
        return CommandAnswer(
            f"/{command.name} takes at most {command.limit:,} characters; these are {len(call.args):,}."
        )
    return await command.run(call)


from workers.commands import (  # noqa: E402, F401 (they register themselves)
    about,
    approval,
    background,
    compress,
    control,
    goal,
    lifetime,
    memory,
    mending,
    model,
    pairing,
    places,
    queue,
    resume,
    search,
    usage,
)
from workers.commands.custom import custom  # noqa: E402
from workers.commands.tiers import may_give  # noqa: E402

"""Tools whose effects are counted, and a place in each where a test can kill the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from keyturn import CallContext, tool


class Killed(BaseException):
    """Stands for SIGKILL: no code of the product catches it, so nothing is tidied up."""


@dataclass
class World:
    """What the tools have done outside."""

    looked: list[str] = field(default_factory=list)
    ordered: list[tuple[str, str]] = field(default_factory=list)  # item, idempotency key
    ordered_for: list[str | None] = field(default_factory=list)  # the user on whose behalf
    charged: list[str] = field(default_factory=list)
    inside: Callable[[str], None] = lambda what: None  # called inside every tool, when its effect has happened


world = World()


def new_world() -> World:
    world.__init__()  # type: ignore[misc]
    return world


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    world.looked.append(what)
    world.inside(what)
    return f"saw {what}"


@tool(effect="keyed")
async def order(what: str, context: CallContext) -> str:
    """Order something."""
    world.ordered.append((what, context.key))
    world.ordered_for.append(context.source.user)
    world.inside(what)
    return f"ordered {what}"


@tool(effect="write")
async def charge(what: str) -> str:
    """Charge for something."""
    world.charged.append(what)
    world.inside(what)
    return f"charged {what}"

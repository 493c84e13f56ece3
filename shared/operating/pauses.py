"""Pauses: hold back a conversation, a chat, a platform, a lane or everything, and let it go on. Messages are accepted meanwhile."""

from __future__ import annotations

from shared import log
from shared.errors import CannotDo, Unavailable
from shared.pause_scope import ScopeKind, parse_scope
from shared.pauses import enforce_pauses
from shared.pipeline import Pipeline
from shared.value import value

LATER = "the housekeeper does the rest when it is back"


@value
class PausedScope:
    """What is held back from now on. Turns and sends that run now are not cut short; no other begins."""

    scope: str
    kind: ScopeKind
    note: str = ""
    state: str = "paused"


@value
class ResumedScope:
    """What goes on, and how many keys were woken: conversations and destinations with something to do."""

    scope: str
    kind: ScopeKind
    woken: int
    note: str = ""
    state: str = "resumed"


async def pause(pipe: Pipeline, scope: str, *, by: str) -> PausedScope:
    """Hold something back until it is resumed; CannotDo where it is paused already, or can never be.

    Mail stays in its mailbox, and no attempt is counted. After a crash behind the database, the housekeeper goes on.
    """
    wanted = parse_scope(scope)
    if not await pipe.store.pauses.begin(wanted.text, by):
        raise CannotDo(f"{wanted.text} is paused already")
    log.get().info("paused", scope=wanted.text, by=by)
    _, note = await _brought_to_redis(pipe)
    return PausedScope(wanted.text, wanted.kind, note)


async def resume(pipe: Pipeline, scope: str) -> ResumedScope:
    """Let something go on, and wake what waits behind it; CannotDo where it is not paused. Narrower pauses stay."""
    wanted = parse_scope(scope)
    if not await pipe.store.pauses.end(wanted.text):
        raise CannotDo(f"{wanted.text} is not paused: `keyturn keys pauses` lists what is")
    log.get().info("resumed", scope=wanted.text)
    woken, note = await _brought_to_redis(pipe)
    return ResumedScope(wanted.text, wanted.kind, woken, note)


async def _brought_to_redis(pipe: Pipeline) -> tuple[int, str]:
    try:
        done = await enforce_pauses(pipe)
    except Unavailable as error:
        return 0, f"{error}; {LATER}"
    return done.woken, f"{done.away}; {LATER}" if done.away is not None else ""

"""Pauses in Redis: which are in force, which keys they hold, and letting those go on.

The database has the truth (shared/store/pauses.py); Redis has it beside the mailboxes, so that claiming a key costs no
round trip more. A key that is held is parked: its mail stays, nobody looks at it, and the end of the pause wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from shared import keys
from shared.failpoints import reach
from shared.lane.lane import Lane
from shared.redis_servers import RedisServer, Script
from shared.value import value

_HERE = Path(__file__).parent
HOLD, UNPARK = (Script.load(_HERE / f"{name}.lua") for name in ("hold", "unpark"))
AT_ONCE = 500


@value
class ParkedEntry:
    """How a parked key stands in its lane's set: `scope key`."""

    scope: str  # of the pause that holds it
    key: str | None  # None: others left this here
    text: bytes

    @classmethod
    def read(cls, text: bytes) -> ParkedEntry:
        scope, _, key = text.partition(b" ")
        try:
            return cls(scope.decode(), key.decode() or None, text)
        except UnicodeDecodeError:
            return cls("", None, text)


async def hold(server: RedisServer, version: int, scopes: Sequence[str], outdated: int = 0) -> int:
    """Put exactly these pauses in force on a server, and give 0; or give the newer version that it knows, unless that is the one
    that the caller knows to be outdated."""
    names = [keys.PAUSES, keys.PAUSES_VERSION]
    newer: int = await server.call(HOLD, names, [version, outdated, *scopes])
    return newer


async def knows_pauses(server: RedisServer) -> bool:
    """Whether there was ever a pause on a server."""
    return bool(await server.asked(server.client.exists(keys.PAUSES, keys.PAUSES_VERSION)))


async def parked_scopes(lane: Lane, server: RedisServer) -> list[str]:
    """The pauses that hold keys of a lane on a server, also those that are in force no more."""
    found: list[str] = []
    after = b"-"
    while entries := await _entries(lane, server, after, b"+", 1):
        scope = entries[0].partition(b" ")[0]
        found.append(scope.decode(errors="replace"))
        after = b"[%b!" % scope  # behind all entries that begin with this scope and a space
    return found


async def count_parked(lanes: Sequence[Lane], server: RedisServer, scopes: Sequence[str]) -> dict[tuple[str, str], int]:
    """How many keys each pause holds on a server, by scope and lane. One round trip, however many pauses there are."""
    asked = [(scope, lane.name) for scope in scopes for lane in lanes]
    if not asked:
        return {}
    pipeline = server.client.pipeline(transaction=False)
    for scope, lane in asked:
        pipeline.zlexcount(keys.parked(lane), f"[{scope} ", f"({scope}!")
    return dict(zip(asked, await server.asked(pipeline.execute()), strict=True))


async def parked_keys(lane: Lane, server: RedisServer, at_most: int) -> list[str]:
    """Keys that are parked, whatever holds them."""
    return [entry.key for entry in await parked_entries(lane, server, at_most) if entry.key is not None]


async def parked_entries(lane: Lane, server: RedisServer, at_most: int) -> list[ParkedEntry]:
    """Entries of keys that are parked, whatever holds them."""
    return [ParkedEntry.read(text) for text in await _entries(lane, server, b"-", b"+", at_most)]


async def unpark_all(lane: Lane, server: RedisServer, scope: str) -> int:
    """Wake every key that a pause holds on a server, and say how many. Cut short anywhere, it may be repeated."""
    woken = 0
    while texts := await _entries(lane, server, f"[{scope} ".encode(), f"({scope}!".encode(), AT_ONCE):
        reach("pause.before_wake")
        woken += sum(await asyncio.gather(*(unpark(lane, server, ParkedEntry.read(text)) for text in texts)))
    return woken


async def unpark(lane: Lane, server: RedisServer, entry: ParkedEntry) -> int:
    """Remove an entry, and wake its key if that pause holds it. 1: it was woken."""
    if entry.key is None:
        await server.asked(server.client.zrem(keys.parked(lane.name), entry.text))
        return 0
    wake = lane.fresh_wake(entry.key)
    names = [keys.state(lane.name, entry.key), keys.due(lane.name), keys.parked(lane.name), *wake.keys]
    woken: int = await server.call(UNPARK, names, [entry.key, entry.scope, lane.recheck_wake_after_ms, *wake.args])
    return woken


async def _entries(lane: Lane, server: RedisServer, first: bytes, last: bytes, at_most: int) -> list[bytes]:
    if at_most <= 0:
        return []
    asked = server.client.zrangebylex(keys.parked(lane.name), first, last, 0, at_most)
    found: list[bytes] = await server.asked(asked)
    return found

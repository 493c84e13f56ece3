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

_HERE = Path(__file__).parent
HOLD, UNPARK = (Script.load(_HERE / f"{name}.lua") for name in ("hold", "unpark"))
AT_ONCE = 500


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
    entries = await parked_entries(lane, server, at_most)
    return [key for key in entries.values() if key is not None]


async def parked_entries(lane: Lane, server: RedisServer, at_most: int) -> dict[bytes, str | None]:
    """Entries of keys that are parked, each with its key; None for what others left there."""
    return {entry: _key(entry) for entry in await _entries(lane, server, b"-", b"+", at_most)}


async def unpark_all(lane: Lane, server: RedisServer, scope: str) -> int:
    """Wake every key that a pause holds on a server, and say how many. Cut short anywhere, it may be repeated."""
    woken = 0
    while entries := await _entries(lane, server, f"[{scope} ".encode(), f"({scope}!".encode(), AT_ONCE):
        reach("pause.before_wake")
        parked = {entry: _key(entry) for entry in entries}
        calls = [_unpark(lane, server, scope, key) for key in parked.values() if key is not None]
        woken += sum(await asyncio.gather(*calls))
        if garbage := [entry for entry, key in parked.items() if key is None]:
            await server.asked(server.client.zrem(keys.parked(lane.name), *garbage))
    return woken


def _unpark(lane: Lane, server: RedisServer, scope: str, key: str) -> asyncio.Future[int]:
    wake = lane.fresh_wake(key)
    names = [keys.state(lane.name, key), keys.due(lane.name), keys.parked(lane.name), *wake.keys]
    return server.call(UNPARK, names, [key, scope, lane.recheck_wake_after_ms, *wake.args])


async def _entries(lane: Lane, server: RedisServer, first: bytes, last: bytes, at_most: int) -> list[bytes]:
    if at_most <= 0:
        return []
    asked = server.client.zrangebylex(keys.parked(lane.name), first, last, 0, at_most)
    found: list[bytes] = await server.asked(asked)
    return found


def _key(entry: bytes) -> str | None:
    """The key of an entry; None for what others left there."""
    try:
        return entry.partition(b" ")[2].decode()
    except UnicodeDecodeError:
        return None

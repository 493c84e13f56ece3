"""Ending what a key runs, from any process: through Redis, which tells the worker and remembers it for the next one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shared import keys
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.lane.rq_names import CHANNEL_PREFIX, JOB_PREFIX
from shared.redis_servers import Script
from shared.value import value

STOP = Script.load(Path(__file__).parent / "stop.lua")


@value
class Stop:
    """What a key was doing when it was asked to stop, and the mail that it had."""

    running: bool
    mail: tuple[bytes, ...]


async def stop(lane: Lane, key: str, at_ms: int, limit: int) -> Stop | None:
    """End the running turn and drop the waiting mail that was received by `at_ms`. None: the key is idle. Safe to repeat."""
    wake = lane.fresh_wake(key)
    names = [keys.state(lane.name, key), keys.due(lane.name), keys.mail(lane.name, key), *wake.keys]
    args = [key, at_ms, lane.recheck_wake_after_ms, limit, JOB_PREFIX, CHANNEL_PREFIX, *wake.args]
    answers = [await lane.servers.of_key(key).call(STOP, names, args)]
    for server in lane.servers.leaving(key):
        with suppress(Unavailable):
            answers.insert(0, await server.call(STOP, names, args))
    stopped = [(was, mail) for was, *mail in answers if was]
    if not stopped:
        return None
    waiting = dict.fromkeys(payload for _, mail in stopped for payload in mail)  # a move may be under way: each once
    return Stop(any(was == 3 for was, _ in stopped), tuple(waiting)[:limit])

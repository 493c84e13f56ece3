"""Keys: take one from the worker that holds it, stop what it runs, and take single pieces out of its mailbox."""

from __future__ import annotations

from shared import keys
from shared.clock import now_ms
from shared.errors import CannotDo, Malformed, Unavailable
from shared.lane.freeing import Freed, free
from shared.lane.lane import Lane
from shared.lane.stopping import stop
from shared.lane_key import parse_key
from shared.pipeline import Pipeline
from shared.reading.keys import KeyPhase, state_of_key
from shared.tasks.starting import stop_tasks
from shared.value import value


@value
class ReleasedKey:
    """A key that was taken from its holder or out of its delay. Its wake is queued."""

    key: str
    was: KeyPhase
    state: KeyPhase = KeyPhase.AWAKE


async def release_key(pipe: Pipeline, key: str) -> ReleasedKey:
    """Take the key from its worker, or out of its delay, and wake it at once; CannotDo where it is idle or paused.

    Safe while a turn is running: whoever commits first wins, and the other's commit is refused. The attempt that is cut
    short is not counted.
    """
    lane = pipe.lane_of(key)
    if (held := await state_of_key(lane, key)).state is KeyPhase.PAUSED:
        raise CannotDo(f"{held.paused} is paused: `keyturn keys resume {held.paused}` lets it go on")
    freed = await free(lane, key)
    if freed is Freed.IDLE:
        raise _nothing_to("release", key)
    return ReleasedKey(key, KeyPhase[freed.name])


@value
class StoppedKey:
    """A key whose turn was asked to end, and how many messages get no answer by that, the running one included."""

    key: str
    was_running: bool
    messages: int


async def stop_key(pipe: Pipeline, key: str) -> StoppedKey:
    """End the running turn of a session key and its background tasks, and drop what waits, as /stop does; CannotDo where it is
    idle.

    Messages that come from now on are answered. Safe to repeat.
    """
    if pipe.lane_of(key) is not pipe.turns:
        raise CannotDo(f"{key} runs no turns: only a session key can be stopped")
    now = now_ms()
    stopped = await stop(pipe.turns, key, now, pipe.settings.mailbox_limit)
    tasks = await stop_tasks(pipe, [key], now)
    if stopped is None and not tasks:
        raise _nothing_to("stop", key)
    return StoppedKey(key, stopped is not None and stopped.running, len(stopped.mail) if stopped is not None else 0)


def _nothing_to(do: str, key: str) -> CannotDo:
    try:
        parse_key(key)
    except Malformed:
        return CannotDo(
            f"{key} is no key: `keyturn keys list` shows those at work, `keyturn sessions list` all sessions"
        )
    return CannotDo(f"{key} is idle: there is nothing to {do}")


async def discard_mail(lane: Lane, key: str, seq: int) -> None:
    """Take one piece of mail out of its mailbox. A journaled one that has not ended comes back: the journal has it."""
    for server in lane.servers.may_have(key):
        try:
            await server.asked(server.client.zremrangebyscore(keys.mail(lane.name, key), seq, seq))
        except Unavailable:
            if server not in lane.servers.draining:
                raise

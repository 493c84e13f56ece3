"""The right to run a key's turns. It makes double work rare; the compare-and-set in the commit makes it harmless."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared import keys
from shared.failpoints import reach
from shared.lane.garbage import Garbled, natural, purge
from shared.lane.wake import StartedWake
from shared.redis_servers import Script, Server
from shared.value import value

if TYPE_CHECKING:
    from shared.lane.lane import Lane

_HERE = Path(__file__).parent
ACKNOWLEDGE, RELEASE, ATTEMPT = (Script.load(_HERE / f"{name}.lua") for name in ("acknowledge", "release", "attempt"))
FIRST_MAILBOX_SEQ = 10**15  # the journal counts from 1; a mailbox that numbers by itself uses microseconds since 1970


@value
class Waiting:
    """One piece of mail as the mailbox holds it."""

    seq: int
    payload: bytes


def unpack_mail(flat: Sequence[bytes]) -> list[Waiting]:
    return [Waiting(natural(flat[i]), flat[i + 1]) for i in range(0, len(flat), 2)]


class Lease:
    """Held from `Lane.start` until `mail` is empty after `acknowledge`, or `release`. Ending it ends the RQ job too."""

    def __init__(
        self,
        lane: Lane,
        server: Server,
        key: str,
        token: str,
        running: StartedWake,
        *,
        attempts: int,
        begun: bool,
        failed: int,
        mail: list[Waiting],
    ) -> None:
        self.lane = lane
        self.server = server
        self.key = key
        self.token = token
        self.running = running
        self._names = [
            keys.mail(lane.name, key),
            keys.state(lane.name, key),
            keys.due(lane.name),
            *running.finish_keys(),
        ]
        self.of = mail[0].seq  # the mail that the counts below belong to
        self.attempts = attempts  # begun, by whomever
        self.begun = begun  # whether the one of this lease is among them
        self.failed = failed  # known to have failed: of the others, nobody saw the end
        self.mail = mail
        self.stopped = False  # somebody asked for this turn to be stopped
        self.ended = False
        self.lost = False
        self.on_lost: Callable[[], object] | None = None
        self.on_turn: Callable[[], object] | None = None  # called whenever an agent begins to run
        self.stop_ms = 0  # mail that was received by then is to be dropped: the user said /stop
        self.interrupted = False  # and the running turn was cut short for it
        self._outage_since: float | None = None  # monotonic: the provider that the mail needs is away since then
        self._running: tuple[int, Callable[[], object]] | None = None

    def attempts_before(self, seq: int) -> tuple[int, int]:
        """How many attempts at this mail began before, and how many of them are known to have failed."""
        return (self.attempts - self.begun, self.failed) if seq == self.of else (0, 0)

    def outage_began(self, ms_ago: int) -> None:
        """An earlier attempt at the mail found its provider away, so long ago; negative: none did."""
        self._outage_since = time.monotonic() - ms_ago / 1000 if ms_ago >= 0 else None

    def outage_before(self, seq: int) -> timedelta:
        """How long the provider that this mail needs has been away, as far as Redis knows."""
        if seq != self.of or self._outage_since is None:
            return timedelta(0)
        return timedelta(seconds=time.monotonic() - self._outage_since)

    async def begin(self, seq: int) -> bool:
        """Count the attempt that is about to start. False: the key is another's by now."""
        if not self.begun or seq != self.of:
            name = keys.state(self.lane.name, self.key)
            self.attempts = await self.server.call(ATTEMPT, [name], [self.token, seq])
            self.begun, self.of = self.attempts > 0, seq
        return self.begun

    async def acknowledge(self, seqs: Sequence[int], *, limit: int, hand_over: bool = False) -> list[Waiting]:
        """Drop done mail and get the next. Empty: the lease has ended, because nothing waits or another took the key."""
        wake = self.lane.fresh_wake(self.key) if hand_over else None
        names = [*self._names, *wake.keys] if wake is not None else self._names
        args: list[Any] = [self.key, self.token, self.lane.lease_ms, limit, int(hand_over), self.lane.patience_ms]
        args += self.running.finish_args(self.result_ttl_s)
        args += [len(seqs), *seqs, *(wake.args if wake is not None else ())]
        reach("acknowledge.before")
        self.lane.let_go(self)  # no renewal may follow: it would take a lease again that this call is about to give up
        answer = await self.server.call(ACKNOWLEDGE, names, args)
        reach("acknowledge.after")
        try:
            self.mail = unpack_mail(answer[1:])
        except Garbled:
            await purge(self.lane, self.key)
            raise
        if self.mail:
            self.of, self.attempts, self.begun, self.failed = self.mail[0].seq, 1, True, 0
            self._outage_since = None
        if answer[0] == 2:
            self.lane.hold(self)
        else:
            self.lost = answer[0] == -1
            self.ended = True
        return self.mail

    async def look(self, at_most: int) -> list[Waiting]:
        """What waits in the mailbox, from the mail that this lease is about on."""
        asked = self.server.client.zrange(self._names[0], 0, at_most - 1, withscores=True)
        found = await self.server.asked(asked)
        return [Waiting(int(seq), payload) for payload, seq in found]

    async def release(self, *, delay: timedelta = timedelta(0), spent: bool, outage: bool = False) -> None:
        """Give the key back with its mail, awake now or after `delay`. `spent`: the attempt failed, or something did
        before one was begun; else it never was, and `outage` says that the provider is away."""
        wake = self.lane.fresh_wake(self.key)
        delay_ms = int(delay.total_seconds() * 1000)
        names = [*self._names[1:], *wake.keys]
        attempt = _ending(self.begun, spent, outage)
        args = [self.key, self.token, delay_ms, attempt, self.lane.patience_ms]
        args += [*self.running.finish_args(self.result_ttl_s), *wake.args]
        reach("release.before")
        self._end()
        await self.server.call(RELEASE, names, args)
        self.lane.wake_after(self.key, delay)

    def running_turn(self, received_ms: int, interrupt: Callable[[], object]) -> None:
        """A turn runs that `interrupt` can end, until `turn_ran`; it answers what was received then."""
        self._running, self.interrupted = (received_ms, interrupt), False
        if self.on_turn is not None:
            self.on_turn()

    def turn_ran(self) -> None:
        self._running = None

    def stop(self, at_ms: int) -> None:
        """Drop what was received by then, the running turn included. Safe to repeat."""
        self.stop_ms = max(self.stop_ms, at_ms)
        if self._running is not None and self._running[0] <= self.stop_ms:
            (_, interrupt), self._running = self._running, None
            self.interrupted = True
            interrupt()

    def lose(self) -> None:
        """Another worker has the key now."""
        self.lost = True
        self._end()
        if self.on_lost is not None:
            self.on_lost()

    @property
    def result_ttl_s(self) -> int:
        return self.lane.wakes.result_ttl_s

    def _end(self) -> None:
        self.ended = True
        self.lane.let_go(self)


def _ending(begun: bool, spent: bool, outage: bool) -> str:
    """What release.lua is told about the attempt."""
    if not begun:
        return "+" if spent else "-"
    return "1" if spent else "w" if outage else "0"

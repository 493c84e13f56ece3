"""The right to run a key's turns. It makes double work rare; the compare-and-set in the commit makes it harmless."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared import keys
from shared.busy import BusyMode
from shared.failpoints import reach
from shared.lane.garbage import Garbled, natural, purge
from shared.lane.rq_names import CHANNEL_PREFIX
from shared.lane.wake import StartedWake
from shared.redis_servers import Script
from shared.value import value

if TYPE_CHECKING:
    from shared.lane.lane import Lane

_HERE = Path(__file__).parent
ACKNOWLEDGE, RELEASE, ATTEMPT, LISTEN = (
    Script.load(_HERE / f"{name}.lua") for name in ("acknowledge", "release", "attempt", "listen")
)
FIRST_MAILBOX_SEQ = 10**15  # the journal counts from 1; a mailbox that numbers by itself uses microseconds since 1970


@value
class Waiting:
    """One piece of mail as the mailbox holds it."""

    seq: int
    payload: bytes


def unpack_mail(flat: Sequence[bytes]) -> list[Waiting]:
    """Mail as the scripts return it: numbers and payloads in turn. Garbled, if a number is none."""
    return [Waiting(natural(flat[i]), flat[i + 1]) for i in range(0, len(flat), 2)]


@value
class Counts:
    """The attempts at one piece of mail, as Redis counts them."""

    seq: int  # of the mail that they belong to
    begun: int  # by whomever
    failed: int  # known to have failed; nobody saw the end of the others
    ours_begun: bool  # whether the attempt of this lease is among those begun
    outage_since: float | None = None  # monotonic: the provider that the mail needs has been away since then


class EarlierAttempts(NamedTuple):
    """The attempts at a piece of mail before the one of this lease."""

    begun: int
    failed: int


@value
class Claimed:
    """What start.lua gave: a key and its first mail."""

    key: str
    token: str
    wake: StartedWake
    mail: list[Waiting]
    counts: Counts
    drop_until_ms: int


class LeaseState(Enum):
    """Whose the key is."""

    HELD = auto()  # ours
    ENDED = auto()  # given back, or nothing waits any more
    LOST = auto()  # another worker has the key


class Lease:
    """Held from `Lane.start` until `mail` is empty after `acknowledge`, or until `release`. Ending it ends the RQ job too.

    A worker that dies ends it by not renewing it: the mail is still in the mailbox, and the housekeeper wakes the key.
    """

    def __init__(self, lane: Lane, claimed: Claimed) -> None:
        self.lane = lane
        self.key = claimed.key
        self.token = claimed.token
        self.wake = claimed.wake
        self.server = claimed.wake.by.server
        self.mail = claimed.mail
        self.counts = claimed.counts
        self.state = LeaseState.HELD
        self.drop_until_ms = claimed.drop_until_ms  # the user said /stop: mail received by then gets no answer
        self.cut_short = False  # whether the running turn was ended for that
        self.killed_by_operator = False  # RQ's stop-job: the attempt counts as failed
        self.on_lost: Callable[[], object] | None = None
        self.busy_mode: BusyMode | None = None  # that was set in the key's session while this lease was held
        self._session_id: str | None = None
        # Mail came that the running turn may want, or a busy mode was set for mail after a number.
        self.on_told: Callable[[int | None], object] | None = None
        self.on_held_up: Callable[[], object] | None = None  # at a renewal, mail waited behind the first
        self._names = [keys.mail(lane.name, self.key), keys.state(lane.name, self.key), keys.due(lane.name)]
        self._names += self.wake.finish_keys()
        self._names_to_go_on = [*self._names, keys.PAUSES, keys.parked(lane.name)]
        self._turn: tuple[int, Callable[[], object]] | None = None  # the running one: received_ms, and how to end it

    @property
    def lost(self) -> bool:
        """Whether another worker has the key now."""
        return self.state is LeaseState.LOST

    @property
    def ended(self) -> bool:
        """Whether the key is no longer ours, for whatever reason."""
        return self.state is not LeaseState.HELD

    def attempts_before(self, seq: int) -> EarlierAttempts:
        """The attempts at this mail before ours. Redis counts for one piece of mail: of any other it knows none."""
        counts = self.counts
        if seq != counts.seq:
            return EarlierAttempts(0, 0)
        return EarlierAttempts(counts.begun - counts.ours_begun, counts.failed)

    def outage_before(self, seq: int) -> timedelta:
        """How long the provider that this mail needs has been away, as far as Redis knows."""
        since = self.counts.outage_since
        if seq != self.counts.seq or since is None:
            return timedelta(0)
        return timedelta(seconds=time.monotonic() - since)

    async def begin(self, seq: int) -> bool:
        """Count the attempt that is about to start, before it can take its worker along. False: the key is another's."""
        counts = self.counts
        if not counts.ours_begun or seq != counts.seq:
            same = seq == counts.seq
            begun = await self.server.call(ATTEMPT, [self._names[1]], [self.token, seq])
            failed, since = (counts.failed, counts.outage_since) if same else (0, None)
            self.counts = counts = Counts(seq, begun, failed, begun > 0, since)
        return counts.ours_begun

    async def is_ours(self) -> bool:
        """Whether Redis still says so. If not, the lease is lost from now on."""
        token = await self.server.asked(self.server.client.hget(self._names[1], "token"))
        if token != self.token.encode():
            self.lose()
        return not self.lost

    async def acknowledge(self, seqs: Sequence[int], *, limit: int, hand_over: bool = False) -> list[Waiting]:
        """Drop done mail and get the next. Empty: the lease has ended, because nothing waits, a pause holds the key, or
        another took it."""
        lane = self.lane
        wake = lane.fresh_wake(self.key) if hand_over else None
        names = [*self._names_to_go_on, *wake.keys] if wake is not None else self._names_to_go_on
        args: list[Any] = [self.key, self.token, lane.lease_ms, limit, int(hand_over), lane.recheck_wake_after_ms]
        args += self.wake.finish_args(lane.result_ttl_s)
        args += [lane.name, len(seqs), *seqs, *(wake.args if wake is not None else ())]
        reach("acknowledge.before")
        lane.renewal.let_go(self)  # no renewal may follow: it would take the lease again that this call gives up
        answer = await self.server.call(ACKNOWLEDGE, names, args)
        reach("acknowledge.after")
        try:
            self.mail = unpack_mail(answer[1:])
        except Garbled:
            await purge(lane, self.key)
            raise
        if self.mail:
            self.counts = Counts(self.mail[0].seq, begun=1, failed=0, ours_begun=True)
        if answer[0] == 1:
            lane.renewal.hold(self)
        else:
            self.state = LeaseState.LOST if answer[0] == -1 else LeaseState.ENDED
        return self.mail

    async def look(self, at_most: int) -> list[Waiting]:
        """The first pieces of mail in the mailbox. Looking takes none out."""
        asked = self.server.client.zrange(self._names[0], 0, at_most - 1, withscores=True)
        found = await self.server.asked(asked)
        return [Waiting(int(seq), payload) for payload, seq in found]

    async def listen(self, at_most: int) -> tuple[int, list[Waiting]]:
        """The same, with the highest number of all mail. From now on `on_told` is called when mail comes. Nothing is heard
        and nothing waits where the key is another's."""
        channel = CHANNEL_PREFIX + self.wake.by.name
        answer = await self.server.call(LISTEN, self._names[:2], [self.token, channel, at_most])
        return (natural(answer[1]), unpack_mail(answer[2:])) if answer[0] == 1 else (0, [])

    async def release(self, *, delay: timedelta = timedelta(0), spent: bool, outage: bool = False) -> None:
        """Give the key back with its mail, awake at once or after `delay`.

        `spent`: the attempt failed, or something failed before one was begun. Otherwise the attempt does not count, and
        `outage` says that it ended because its provider is away.
        """
        wake = self.lane.fresh_wake(self.key)
        delay_ms = int(delay.total_seconds() * 1000)
        names = [*self._names[1:], *wake.keys]
        attempt = _attempt_word(self.counts.ours_begun, spent, outage)
        args = [self.key, self.token, delay_ms, attempt, self.lane.recheck_wake_after_ms]
        args += [*self.wake.finish_args(self.lane.result_ttl_s), *wake.args]
        reach("release.before")
        self._end(LeaseState.ENDED)
        await self.server.call(RELEASE, names, args)
        self.lane.wake_after(self.key, delay)

    def turn_begins(self, received_ms: int, interrupt: Callable[[], object]) -> None:
        """An agent runs from now until `turn_ends`. It answers mail received then, and `interrupt` ends it."""
        self._turn, self.cut_short = (received_ms, interrupt), False

    def turn_ends(self) -> None:
        """The agent has ended: /stop has nothing to interrupt any more."""
        self._turn = None

    def drop_until(self, at_ms: int) -> None:
        """The user said /stop then: what was received by that time gets no answer, the running turn included.

        Safe to repeat: the signal comes by RQ's channel, with a renewal, and with the claim of the next holder.
        """
        self.drop_until_ms = max(self.drop_until_ms, at_ms)
        if self._turn is not None and self._turn[0] <= self.drop_until_ms:
            (_, interrupt), self._turn = self._turn, None
            self.cut_short = True
            interrupt()

    def talks_to(self, session_id: str) -> None:
        """The next turn belongs to this session. A busy mode that was set in another one does not count there."""
        if self._session_id != session_id:
            self.busy_mode = self.busy_mode if self._session_id is None else None
            self._session_id = session_id

    def told(self, mode: BusyMode | None = None, after: int = 0) -> None:
        """Somebody put mail for the running turn, or set the busy mode for mail after that number. Safe to repeat."""
        self.busy_mode = mode or self.busy_mode
        if self.on_told is not None:
            self.on_told(after if mode is not None else None)

    def lose(self) -> None:
        """Another worker has the key now."""
        self._end(LeaseState.LOST)
        if self.on_lost is not None:
            self.on_lost()

    def _end(self, state: LeaseState) -> None:
        if self.state is not LeaseState.LOST:
            self.state = state
        self.lane.renewal.let_go(self)


def _attempt_word(ours_begun: bool, spent: bool, outage: bool) -> str:
    """What release.lua is told about the attempt."""
    if not ours_begun:
        return "+" if spent else "-"
    return "1" if spent else "w" if outage else "0"

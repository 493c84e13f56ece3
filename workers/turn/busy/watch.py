"""Watches a key's mailbox while its turn runs, and does what the busy mode says. In mode `queue` it costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial

from shared.background import end_tasks, survived
from shared.busy import BusyMode
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.lane import Lease
from shared.lane.lease import Waiting
from shared.messages import Inbound, Mail, Session
from shared.settings import Settings
from workers.commands.tiers import may_give
from workers.turn.busy.behind import LOOK_AT_MOST, companions, new_conversation
from workers.turn.busy.inbox import TurnInbox
from workers.turn.busy.notice import WaitNotices
from workers.turn.busy.reject import reject_new
from workers.turn.parts import TurnParts
from workers.turn.question import ASKING


class Cut(StrEnum):
    """Why a turn was ended before its time: the reason that its message is recorded with."""

    INTERRUPTED = "interrupted"
    ROLLED_BACK = "rolled back"


REFUSING_SECONDS = 0.01  # between two looks whether a message that is being refused has been
_CUTS = {BusyMode.INTERRUPT: Cut.INTERRUPTED, BusyMode.ROLLBACK: Cut.ROLLED_BACK}


class BusyWatch:
    """The mail that comes while one turn runs. Used once: `begin` before the agent runs, `end` when it has ended."""

    __slots__ = (
        "_after",
        "_is_listening",
        "_is_refusing",
        "_lease",
        "_may_give",
        "_mode",
        "_notices",
        "_parts",
        "_running",
        "_session",
        "_stop",
        "_watching",
        "_woken",
        "cut",
        "inbox",
    )

    def __init__(self, running: Sequence[Mail], session: Session, lease: Lease, parts: TurnParts) -> None:
        """`running` is all mail that the turn answers, the first in line first."""
        # No method of this object: it would keep the inbox and the watch alive until the garbage collector finds them.
        self._may_give = partial(_may_give, parts.pipe.settings)
        self.inbox = TurnInbox(running, lease, parts.pipe, parts.media, self._may_give)
        self.cut: Cut | None = None  # set before the turn is stopped for a new message
        self._running = running
        self._session = session
        self._lease = lease
        self._parts = parts
        self._mode = BusyMode.QUEUE
        self._stop: Callable[[], object] | None = None
        self._is_listening = False
        self._after = 0  # mail up to this number was there before the turn, or before its mode was set
        self._woken: asyncio.Event | None = None  # set when it is told something; None: it does not watch
        self._watching: asyncio.Task[None] | None = None
        self._is_refusing = False
        self._notices: WaitNotices | None = None

    async def begin(self, stop: Callable[[], object]) -> None:
        """The agent runs from now on; `stop` ends it. While Redis is away nothing is heard, and the turn runs all the same."""
        lease = self._lease
        self._stop = stop
        lease.on_told = self._told
        lease.on_held_up = self._held_up
        self._mode = self._current_mode()
        if self._mode is not BusyMode.QUEUE:
            with suppress(Unavailable):
                self._show(await self._listen())
            self._begin_to_watch()

    async def end(self) -> None:
        """The agent has ended. What is being refused is refused; everything else stays mail."""
        lease = self._lease
        lease.on_told = lease.on_held_up = self._stop = None
        if self._notices is not None:
            await self._notices.end()
        if self._watching is not None:
            while self._is_refusing:
                await asyncio.sleep(REFUSING_SECONDS)
            await end_tasks(self._watching)

    def _told(self, after: int | None) -> None:
        if after is not None:
            self._after = after
        self._begin_to_watch().set()

    def _held_up(self) -> None:
        self._notices = self._notices or WaitNotices(self._running, self.inbox, self._lease, self._parts)
        self._notices.held_up()

    def _begin_to_watch(self) -> asyncio.Event:
        if self._woken is None:
            self._woken = asyncio.Event()
            self._watching = asyncio.create_task(self._watch(self._woken))
        return self._woken

    async def _watch(self, woken: asyncio.Event) -> None:
        """Look when told to, and once per heartbeat, because what is told may get lost."""
        seconds = self._parts.pipe.settings.heartbeat.total_seconds()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await woken.wait()
            woken.clear()
            try:
                await self._act()
            except Exception as error:
                survived("busy", "mailbox of a running turn not looked at", error, key=self._lease.key)

    async def _act(self) -> None:
        mode = self._mode = self._current_mode()
        is_known = self._is_listening or mode is BusyMode.QUEUE
        waiting = await (self._lease.look(LOOK_AT_MOST) if is_known else self._listen())
        self._show(waiting)
        if self._stop is not None and (cut := self._cut_by(waiting)) is not None:
            reach("interrupt.before_stop")
            self.cut = cut
            stop, self._stop = self._stop, None
            stop()
        elif mode is BusyMode.REJECT:
            self._is_refusing = True
            try:
                await reject_new(self._running, waiting, self._after, self._lease, self._parts)
            finally:
                self._is_refusing = False

    def _cut_by(self, waiting: Sequence[Waiting]) -> Cut | None:
        """How the mail that came ends the turn. /new does in every mode: nobody waits for an answer to what they leave."""
        new = new_conversation(self._running, waiting, self._may_give)
        if new is not None and new.seq > self._after:
            return Cut.INTERRUPTED
        if (cut := _CUTS.get(self._mode)) is None:
            return None
        found = companions(self._running, waiting, self._may_give)
        return cut if any(one.mail.seq > self._after and not one.is_steer for one in found) else None

    async def _listen(self) -> list[Waiting]:
        last, waiting = await self._lease.listen(LOOK_AT_MOST)
        self._is_listening = True
        self._after = self._after or last
        return waiting

    def _show(self, waiting: Sequence[Waiting]) -> None:
        """Tell the inbox what it may give. While a question is open, a plain message may be its answer: it is left alone."""
        self.inbox.takes_all = self._mode is BusyMode.STEER and ASKING not in self._session.facts
        self.inbox.offer(companions(self._running, waiting, self._may_give))

    def _current_mode(self) -> BusyMode:
        return self._parts.busy_modes.in_session(self._session, self._running[0].inbound, self._lease.busy_mode)


def _may_give(settings: Settings, inbound: Inbound, command: str) -> bool:
    return may_give(settings, inbound.source, command, admin=False)

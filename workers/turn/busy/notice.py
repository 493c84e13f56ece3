"""Tells a chat that its message waits behind a running turn, and at which place: after the message is journaled, and at most
once per 30 seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from shared import keys
from shared.background import end_tasks, survived
from shared.failpoints import reach
from shared.lane import Lease
from shared.lane_key import Destination
from shared.messages import Kind, Mail
from shared.platforms import FOR_PROGRAMS
from workers.turn.busy.behind import LOOK_AT_MOST, people_behind
from workers.turn.busy.inbox import TurnInbox
from workers.turn.parts import TurnParts

EVERY_SECONDS = 30


class WaitNotices:
    """The notices during one turn. Renewals of the lease find that mail waits, so a turn shorter than a heartbeat costs nothing."""

    def __init__(self, running: Sequence[Mail], inbox: TurnInbox, lease: Lease, parts: TurnParts) -> None:
        self._running = running
        self._inbox = inbox
        self._lease = lease
        self._parts = parts
        self._next_at = 0.0  # monotonic
        self._task: asyncio.Task[None] | None = None

    def held_up(self) -> None:
        """Mail waits behind the running turn."""
        first = self._running[0]
        inbound = first.inbound
        if not self._parts.pipe.settings.busy_notices or inbound.source.platform in FOR_PROGRAMS:
            return
        if inbound.kind is not Kind.MESSAGE or not first.journaled:
            return
        if time.monotonic() >= self._next_at and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._tell())

    async def end(self) -> None:
        """The agent has ended."""
        if self._task is not None:
            await end_tasks(self._task)

    async def _tell(self) -> None:
        lease = self._lease
        try:
            running = (*self._running, *self._inbox.taken)  # what the turn took in does not wait
            waiting = [*people_behind(running, await lease.look(LOOK_AT_MOST))]
            if not waiting:
                return
            self._next_at = time.monotonic() + EVERY_SECONDS
            chat = str(Destination(*waiting[-1].inbound.source.address.place))
            server = self._parts.pipe.servers.of_key(chat)
            if not await server.asked(server.client.set(keys.noticed(chat), 1, nx=True, ex=EVERY_SECONDS)):
                return
            reach("notice.before_add")
            notices = self._parts.pipe.store.notices
            added = await notices.add(waiting[-1], _text(len(waiting)), lease.key)
            reach("notice.after_add")
            if added is not None:
                await asyncio.gather(*self._parts.publisher.publish(added.destination, (added.part_id,)))
        except Exception as error:
            survived("busy", "chat not told that its message waits", error, key=lease.key)


def _text(place: int) -> str:
    return f"I am still working on an earlier message. Yours waits; it is number {place} in line."

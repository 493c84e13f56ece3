"""The lock of a session that several keys talk to. A key's lease keeps its own turns apart; this keeps the keys apart.

After /resume two keys may point at one session, and the session's facts say so (`joined:<key>`, seen with the load). Only
then is this lock taken: with the lease's token, after the load that showed the fact, and the session is loaded again under
it. Tickets make it fair: who gives the lock back and wants it again stands behind all who wait. A ticket that nobody
renews runs out. It makes double work rare, as the lease does; the compare-and-set in the commit makes it harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from shared import keys, log
from shared.background import end_tasks, survived
from shared.errors import Unavailable
from shared.lane.lane import Lane
from shared.lane.lease import Lease
from shared.messages import Session
from shared.redis_servers import RedisServer, Script
from shared.store.journal import Journal

JOINED = "joined:"  # then a key: it talks to this session, too
TICKET, UNAWARE = (Script.load(Path(__file__).parent / f"{name}.lua") for name in ("session_lock", "unaware"))
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.2


def joined(facts: Mapping[str, str], key: str) -> list[str]:
    """The other keys that talk to a session."""
    if not facts:
        return []
    return [name.removeprefix(JOINED) for name in facts if name.startswith(JOINED) and name != JOINED + key]


class SessionLock:
    """The lock as one lease needs it: of the session that its key talks to, if others do too. Free until then."""

    def __init__(self, lease: Lease, journal: Journal, renew_seconds: float) -> None:
        self._lease = lease
        self._lane: Lane = lease.lane
        self._journal = journal
        self._renew_seconds = renew_seconds
        self._session_id: str | None = None
        self._tickets: set[RedisServer] = set()  # where ours are: on several servers while one is drained
        self._renewing: asyncio.Task[None] | None = None

    async def follow(self, session: Session) -> bool:
        """Hold the lock of this session, if it needs one, and no other. True: others may have moved it on: load it again."""
        if session.id == self._session_id:
            return False
        if self._session_id is not None:
            await self.give_back()
        others = joined(session.facts, self._lease.key)
        if not others:
            return False
        await self._take(session.id, others)
        return True

    async def give_back(self) -> None:
        """Let the next ticket have the session. If Redis is away, ours runs out."""
        session_id, self._session_id = self._session_id, None
        if session_id is None:
            return
        if self._renewing is not None:
            await end_tasks(self._renewing)
            self._renewing = None
        while self._tickets:
            server = self._tickets.pop()
            with suppress(Exception):
                await server.asked(server.client.hdel(keys.session_lock(session_id), self._lease.token))

    async def _take(self, session_id: str, others: list[str]) -> None:
        self._session_id = session_id  # from here on there is a ticket to give back, whatever happens
        pause = FIRST_PAUSE_SECONDS
        while (waiting := await self._ticket(session_id)) is None or await self._unaware(session_id, others, waiting):
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        self._renewing = asyncio.create_task(self._renew(session_id))

    async def _ticket(self, session_id: str) -> list[str] | None:
        """The lease tokens that wait behind us; None when an older ticket has the session.

        While the lock leaves a server that is drained, it is taken there first: others may not know yet that it leaves.
        """
        names, args = [keys.session_lock(session_id)], [self._lease.token, self._lane.lease_ms]
        behind: list[str] = []
        for server in self._lane.servers.may_have(session_id):
            self._tickets.add(server)
            try:
                first, *waiting = await server.call(TICKET, names, args)
            except Unavailable:
                if server in self._lane.servers.draining:
                    continue
                raise
            if first != 1:
                return None
            behind += [token.decode() for token in waiting]
        return behind

    async def _unaware(self, session_id: str, others: list[str], waiting: list[str]) -> bool:
        """Whether another key still runs under a lease from before it was joined: such a one knows of no lock."""
        for other in others:
            if await self._is_held(other, waiting):
                route = await self._journal.route(other)
                if route is not None and route["session_id"] == session_id:
                    return True
        return False

    async def _is_held(self, other: str, waiting: list[str]) -> bool:
        """Whether a key is under a lease whose token is not among these, at any server that may have it."""
        for server in self._lane.servers.may_have(other):
            try:
                if await server.call(UNAWARE, [keys.state(self._lane.name, other)], waiting):
                    return True
            except Unavailable:
                if server not in self._lane.servers.draining:
                    raise
        return False

    async def _renew(self, session_id: str) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            try:
                if await self._ticket(session_id) is None:  # it ran out, and another has it: the commit decides
                    log.get().warning("session lock lost", key=self._lease.key, session=session_id)
            except Exception as error:
                survived("session lock", "session lock not renewed", error, session=session_id)

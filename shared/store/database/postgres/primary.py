"""Which server is the primary, and which one was: that one is never written to again.

PostgreSQL counts promotions. A replica that is promoted begins a new *timeline* with a higher number; an old primary that comes
back keeps its lower one. Each process remembers the highest timeline that it has seen and refuses a server with a lower one. It
remembers nothing after a restart, so it looks at every server of DATABASE_URL before it takes the first connection. It may have
stood still while a server was promoted, so it looks at the others after each further connection, too, before it uses it.

A server in recovery is a replica. It is refused where DATABASE_URL names several servers; where it names one, that may be
read, and the server itself refuses writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from shared import log, metrics
from shared.store.database.postgres.servers import Server
from shared.value import value

# As a list of columns, so that it can join another query. In recovery there is no timeline to write to.
STANDING = """
(SELECT system_identifier::text FROM pg_control_system()) AS system,
CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline"""
# For a server that keeps these from us: then every primary looks alike.
STANDING_UNTOLD = "'' AS system, CASE WHEN NOT pg_is_in_recovery() THEN '1' END AS timeline"
UNTOLD = (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)


class NotPrimary(psycopg.OperationalError):
    """This server must not be written to. The text names it and says why."""


class NoPrimary(psycopg.OperationalError):
    """No server of DATABASE_URL can be written to. The text says of each why not."""


@value
class ServerStanding:
    """What a server says of itself."""

    system: str  # the same for a primary and its replicas, and for no other server
    timeline: int  # 0: in recovery

    @classmethod
    def read(cls, row: dict[str, Any]) -> ServerStanding:
        return cls(row["system"], int(row["timeline"] or "0", 16))


class Primary:
    """What this process knows of the primary."""

    def __init__(self, servers: tuple[Server, ...]) -> None:
        self.servers = servers
        self.server: Server | None = None
        self.standing = ServerStanding("", 0)
        self.columns = STANDING
        self.changed: Callable[[], None] = lambda: None  # called when there is a new primary
        self.look_at_others: Callable[[], Awaitable[None]] = _no_others

    def others(self) -> list[Server]:
        """The servers beside the primary."""
        return [server for server in self.servers if server != self.server]

    def is_old(self, standing: ServerStanding) -> bool:
        """Whether a connection to a server that stood so must not be used any more. The only server may be read, also as a replica."""
        if not standing.timeline and len(self.servers) == 1:
            return False
        return self.server is not None and standing.timeline < self.standing.timeline

    def is_new(self, standing: ServerStanding) -> bool:
        """Whether a server that stands so has been promoted after our primary was."""
        return standing.system == self.standing.system and standing.timeline > self.standing.timeline

    def admit(self, server: Server, standing: ServerStanding) -> None:
        """Take note of a server that we are connected to. Raises NotPrimary where it must not be used."""
        if not standing.timeline:
            if len(self.servers) > 1:
                raise NotPrimary(f"{server.name} is a replica")
            return
        if self.server is None:
            self.server, self.standing = server, standing
        elif standing.system != self.standing.system:
            self._admit_stranger(server, standing)
        elif standing.timeline < self.standing.timeline:
            theirs, ours = standing.timeline, self.standing.timeline
            raise NotPrimary(f"{server.name} is an old primary: timeline {theirs}, {self.server.name} has {ours}")
        elif standing.timeline > self.standing.timeline:
            self._move(server, standing)
        else:
            self.server = server  # another way to the same one, by two poolers for example

    def cannot_tell(self, error: psycopg.Error) -> None:
        """From here on servers are asked less: this one does not let us know its timeline."""
        if self.columns == STANDING:
            self.columns = STANDING_UNTOLD
            log.get().warning(
                "PostgreSQL keeps its timeline from us: an old primary is not recognised", error=str(error)
            )

    def _admit_stranger(self, server: Server, standing: ServerStanding) -> None:
        """One address may be given to a new server, by an upgrade for example. Of several, one is somebody else's."""
        if len(self.servers) > 1:
            raise NotPrimary(f"{server.name} belongs to another cluster, or was made anew: restart the processes then")
        self._move(server, standing)

    def _move(self, server: Server, standing: ServerStanding) -> None:
        self.server, self.standing = server, standing
        metrics.DATABASE_FAILOVERS.inc()
        log.get().warning("PostgreSQL has a new primary", server=server.name, timeline=standing.timeline)
        self.changed()


async def _no_others() -> None:
    """Until somebody watches the other servers, there is nothing to ask."""

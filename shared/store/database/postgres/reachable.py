"""Where a PostgreSQL server is, and why no connection to it could be had, in words that hold no password."""

from __future__ import annotations

import psycopg

from shared.store.database.postgres.servers import Server

TEXT_LIMIT = 300


class NoConnection(psycopg.OperationalError):
    """A call waited for a connection, and none came. The text names the server and the reason."""


class Reachability:
    """What the last attempt to connect to a server, or to one of several, came to."""

    def __init__(self, url: str, servers: tuple[Server, ...]) -> None:
        self._servers = ", ".join(server.name for server in servers)
        self._password = str(psycopg.conninfo.conninfo_to_dict(url).get("password") or "")
        self._failure = ""

    def connected(self) -> None:
        self._failure = ""

    def failed(self, error: psycopg.Error) -> None:
        """Keep the first line of what the driver says, unless the password stands in it."""
        lines = str(error).strip().splitlines() or [""]
        said = lines[0].removeprefix("connection failed: ")[:TEXT_LIMIT]
        hidden = not said or (self._password and self._password in said)
        self._failure = type(error).__name__ if hidden else said

    def why(self) -> NoConnection:
        """Why a call got none of the connections."""
        return self.why_not_made() if self._failure else NoConnection(f"all connections to {self._servers} are in use")

    def why_not_made(self) -> NoConnection:
        """Why a call could not make one."""
        return NoConnection(f"{self._servers} does not answer ({self._failure or 'nothing came in time'})")

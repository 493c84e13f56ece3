"""A primary and its replicas: which server is which, whether an old primary is up, and what a failover could lose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import psycopg
from psycopg.rows import dict_row

from keyturn.cli.doctor.finding import Finding, fail, ok, said, warn
from shared.store.database.postgres.primary import STANDING, ServerStanding
from shared.store.database.postgres.servers import Server

CONNECT_SECONDS = 3
_ASK = f"SELECT {STANDING}, current_setting('synchronous_standby_names') AS synchronous"
Found = tuple[Server, ServerStanding | None, str]  # with an error, or with the names of synchronous replicas


async def check_servers(servers: Iterable[Server]) -> tuple[Server | None, list[Finding]]:
    """The primary, if there is one, and what was found."""
    found = await asyncio.gather(*(_ask(server) for server in servers))
    primary = max((one for one in found if one[1] and one[1].timeline), key=_timeline, default=None)
    return primary[0] if primary else None, list(server_findings(found))


def server_findings(found: Iterable[Found]) -> Iterator[Finding]:
    """A line for each server, and one for what the primary promises."""
    found = list(found)
    primary = max((one for one in found if one[1] and one[1].timeline), key=_timeline, default=None)
    for server, standing, about in found:
        name = f"database server {server.name}"
        if standing is None:
            yield warn(name, f"does not answer: {about}", "start it, or take it out of KEYTURN_DATABASE_URL")
        elif primary and primary[1] and standing.system != primary[1].system:
            yield fail(name, "belongs to another cluster", "take it out of KEYTURN_DATABASE_URL")
        elif not standing.timeline:
            yield ok(name, "replica")
        elif primary and server == primary[0]:
            yield ok(name, f"primary, timeline {standing.timeline}")
        else:
            detail = f"takes writes with timeline {standing.timeline}: an old primary, or a second one"
            yield fail(name, detail, "stop it, and make it a replica by pg_rewind or pg_basebackup")
    if primary is None:
        yield fail("database servers", "none can be written to", "promote a replica: SELECT pg_promote()")
    elif not primary[2]:
        fix = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)', once a replica follows"
        yield warn("database servers", "replication is asynchronous: a failover loses the latest messages", fix)


def _timeline(found: Found) -> int:
    return found[1].timeline if found[1] else 0


async def _ask(server: Server) -> Found:
    try:
        async with (
            asyncio.timeout(2 * CONNECT_SECONDS),
            await psycopg.AsyncConnection.connect(
                server.conninfo, connect_timeout=CONNECT_SECONDS, autocommit=True, row_factory=dict_row
            ) as connection,
        ):
            [row] = await (await connection.execute(_ASK.encode())).fetchall()
            return server, ServerStanding.read(row), row["synchronous"]
    except (psycopg.Error, TimeoutError) as error:
        password = str(psycopg.conninfo.conninfo_to_dict(server.conninfo).get("password") or "")
        return server, None, said(error, f"://:{password}@")

"""Which of several PostgreSQL servers is taken for the primary, and what becomes of the connections to the others."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest

from shared.store.database.postgres.finding import connect_to_primary
from shared.store.database.postgres.primary import NoPrimary, Primary, ServerStanding
from shared.store.database.postgres.servers import Server

A, B, C, D = SERVERS = tuple(Server(name, name) for name in "abcd")


@dataclass
class Connection:
    server: Server
    standing: ServerStanding
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


class Cluster:
    """Servers by their timelines; 0: a replica, None: it does not answer."""

    def __init__(self, *timelines: int | None) -> None:
        self._timelines = dict(zip(SERVERS, timelines, strict=True))
        self.primary = Primary(SERVERS)
        self.made: list[Connection] = []

    async def connect(self, server: Server) -> Connection:
        if (timeline := self._timelines[server]) is None:
            raise psycopg.OperationalError(f"{server.name} is away")
        self.made.append(Connection(server, ServerStanding("one", timeline)))
        return self.made[-1]

    @property
    def open(self) -> list[Server]:
        return [connection.server for connection in self.made if not connection.closed]


@pytest.mark.parametrize(
    ("timelines", "found"),
    [((1, 0, 0, 0), A), ((0, 0, 0, 1), D), ((1, 1, 1, 1), A), ((1, 3, 2, 0), B), ((1, None, 2, None), C)],
)
async def test_the_server_that_was_promoted_last_is_taken_and_no_connection_to_another_stays(
    timelines: tuple[int | None, ...], found: Server
) -> None:
    cluster = Cluster(*timelines)
    assert (await connect_to_primary(cluster.primary, cluster.connect)).server is found
    assert cluster.open == [found] and cluster.primary.server is found


async def test_where_no_server_is_a_primary_all_say_why_and_no_connection_stays() -> None:
    cluster = Cluster(0, None, 0, None)
    with pytest.raises(NoPrimary, match=r"^b is away; d is away; a is a replica; c is a replica$"):
        await connect_to_primary(cluster.primary, cluster.connect)
    assert cluster.open == [] and len(cluster.made) == 2

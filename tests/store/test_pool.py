"""The connections of a process to PostgreSQL: none is lost, whatever becomes of the calls that wait for one or use one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from shared.errors import Unavailable
from shared.store.database.postgres import PostgresDatabase
from shared.store.database.postgres import pool as pools
from shared.store.database.postgres.connection import PostgresConnection
from shared.store.database.postgres.pool import Pool, new_pool
from shared.store.database.postgres.primary import ServerStanding
from shared.store.database.postgres.reachable import NoConnection
from tests.faults.databases import through
from tests.store.books import raw
from tests.support.proxy import Proxy, Way
from tests.support.servers import Databases

CONNECTIONS = 3


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    with databases.lent_postgres() as lent:
        yield lent


@pytest.fixture
async def pool(url: str) -> AsyncIterator[Pool]:
    async with _opened(url) as opened:
        yield opened


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Pool]:
    pool = new_pool(url, CONNECTIONS)
    try:
        yield pool
    finally:
        pool.close()


async def _backends(pool: Pool, connections: int = CONNECTIONS) -> set[int]:
    """Take so many connections at once, and give the servers' processes behind them. NoConnection where they cannot be had."""
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(pool.connection()) for _ in range(connections)]
        cursors = [await connection.execute(b"SELECT pg_backend_pid() AS pid") for connection in held]
        return {(await cursor.fetchall())[0]["pid"] for cursor in cursors}


async def _use(pool: Pool, seconds: float) -> None:
    async with pool.connection() as connection:
        await connection.execute(b"SELECT 1")
        await asyncio.sleep(seconds)


async def test_no_more_than_so_many_are_given_and_whoever_waits_too_long_is_told_so(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            await stack.enter_async_context(pool.connection())
        monkeypatch.setattr(pools, "WAIT_SECONDS", 0.05)
        with pytest.raises(NoConnection, match=r"all connections to .* are in use"):
            await _use(pool, 0)


async def test_each_is_used_again_and_only_as_many_are_made_as_were_used_at_once(pool: Pool) -> None:
    [first] = await _backends(pool, 1)
    assert await _backends(pool, 1) == {first}
    both = await _backends(pool, 2)
    assert first in both and len(both) == 2
    assert await _backends(pool, 2) == both


async def test_none_is_lost_when_calls_run_out_of_time_or_are_cancelled_at_any_moment(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    for _ in range(40):
        monkeypatch.setattr(pools, "WAIT_SECONDS", 0.01)
        calls = [asyncio.create_task(_use(pool, rng.uniform(0.0, 0.012))) for _ in range(60)]
        await asyncio.sleep(rng.uniform(0.0, 0.02))
        for call in rng.sample(calls, 30):
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        monkeypatch.setattr(pools, "WAIT_SECONDS", 30.0)
        assert len(await _backends(pool)) == CONNECTIONS


async def test_whoever_waits_gets_the_one_that_is_given_back_and_those_that_gave_up_get_none(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = list[str]()

    async def wait(name: str) -> None:
        async with pool.connection():
            order.append(name)

    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            await stack.enter_async_context(pool.connection())
        gone = [asyncio.create_task(wait("gone")) for _ in range(200)]
        monkeypatch.setattr(pools, "WAIT_SECONDS", 30.0)
        stay = [asyncio.create_task(wait(f"call {number}")) for number in range(CONNECTIONS)]
        await asyncio.sleep(0)
        for call in gone:
            call.cancel()
    await asyncio.gather(*stay)
    assert order == [f"call {number}" for number in range(CONNECTIONS)]


async def test_one_that_the_server_ended_while_nobody_used_it_is_not_given(pool: Pool) -> None:
    before = await _backends(pool, 2)
    async with pool.connection() as connection:
        mine = connection.info.backend_pid
        [other] = before - {mine}
        await connection.execute(f"SELECT pg_terminate_backend({other}, 5000)".encode())
    after = await _backends(pool, 2)
    assert mine in after and other not in after


async def test_one_that_nobody_needed_for_long_is_closed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await _backends(pool)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + pools.IDLE_SECONDS + 1)
    [kept] = await _backends(pool, 1)
    async with pool.connection() as connection:
        others = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1"
        assert connection.info.backend_pid == kept
        for _ in range(100):  # the server notices a little later
            cursor = await connection.execute(others.encode(), [kept])
            if not (left := (await cursor.fetchall())[0]["n"]):
                break
            await asyncio.sleep(0.05)
        assert left == 0


async def test_those_that_nobody_needs_are_closed_though_no_call_comes_any_more(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.3)
    await _backends(pool)
    assert len(pool._idle) == CONNECTIONS
    async with asyncio.timeout(10):
        while pool._idle:
            await asyncio.sleep(0.05)
    assert len(await _backends(pool)) == CONNECTIONS
    async with asyncio.timeout(10):
        while pool._idle:
            await asyncio.sleep(0.05)


async def test_one_that_has_lived_for_an_hour_is_replaced(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    [old] = await _backends(pool, 1)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 0.89 * pools.LIFE_SECONDS)
    assert await _backends(pool, 1) == {old}
    monkeypatch.setattr(time, "monotonic", lambda: now() + pools.LIFE_SECONDS)
    assert await _backends(pool, 1) != {old}


async def test_a_renewal_leaves_all_of_them_those_in_use_when_they_are_given_back(pool: Pool) -> None:
    async with pool.connection() as used:
        before = await _backends(pool, 2) | {used.info.backend_pid}
        pool.renew()
        await used.execute(b"SELECT 1")
    assert not await _backends(pool) & before


async def test_a_call_does_not_wait_for_a_server_that_is_silent_and_the_connection_is_there_when_it_speaks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Proxy(urlsplit(url).port or 0)
    await network.open()
    monkeypatch.setattr(pools, "WAIT_SECONDS", 0.2)
    async with _opened(through(network, url)) as pool:
        network.hold(Way.TO_CLIENT)
        for _ in range(2):
            with pytest.raises(NoConnection, match=r"does not answer \(nothing came in time\)"):
                await _use(pool, 0)
        await network.heal()
        monkeypatch.setattr(pools, "WAIT_SECONDS", 30.0)
        assert len(await _backends(pool)) == CONNECTIONS
    network.close()


async def test_whoever_waits_when_it_is_closed_is_told_so_at_once_and_nobody_is_cancelled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "WAIT_SECONDS", 120.0)
    network = Proxy(urlsplit(url).port or 0)
    await network.open()
    async with _opened(through(network, url)) as pool:
        network.hold(Way.TO_CLIENT)
        calls = [asyncio.create_task(_use(pool, 0)) for _ in range(CONNECTIONS + 2)]  # some wait for a permit
        await asyncio.sleep(0.1)
        pool.close()
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [(type(error), str(error)) for error in ended] == [(NoConnection, pools.CLOSED)] * len(calls)
    network.close()


async def test_who_comes_after_it_was_closed_gets_none_though_one_that_is_used_is_given_back_then(pool: Pool) -> None:
    async with pool.connection() as used:
        pool.close()
        with pytest.raises(NoConnection, match=pools.CLOSED):
            await _use(pool, 0)
        await used.execute(b"SELECT 1")
    with pytest.raises(NoConnection, match=pools.CLOSED):
        await _use(pool, 0)


async def test_the_only_server_is_read_over_kept_connections_when_it_has_become_a_replica(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = PostgresConnection.look

    async def look_at_a_replica(connection: PostgresConnection) -> ServerStanding:
        connection.standing = replace(await look(connection), timeline=0)
        return connection.standing

    as_primary = await _backends(pool, 1)
    monkeypatch.setattr(PostgresConnection, "look", look_at_a_replica)
    pool.renew()
    as_replica = await _backends(pool, 1)
    assert as_replica != as_primary and await _backends(pool, 1) == as_replica


async def test_while_a_database_is_closed_no_call_lets_other_servers_be_looked_at_again(url: str) -> None:
    port = urlsplit(url).port
    database = await PostgresDatabase.open(url.replace(f":{port}/", f":{port},localhost:{port}/"), CONNECTIONS)
    await database.read(raw("SELECT 1 AS n"))
    watch, is_closed = database._watch, asyncio.Event()

    async def a_look_at_a_silent_server() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await is_closed.wait()

    watch._looks.add(asyncio.create_task(a_look_at_a_silent_server()))
    await asyncio.sleep(0)
    database._pool.renew()
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match=pools.CLOSED):
        await database.read(raw("SELECT 1 AS n"))
    is_closed.set()
    await closing
    assert watch._connections == {}


async def test_an_error_that_meets_every_new_connection_is_an_outage_of_whatever_kind_it_is(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(connection: PostgresConnection) -> ServerStanding:
        raise psycopg.errors.InternalError_("cache lookup failed")

    monkeypatch.setattr(PostgresConnection, "look", look)
    with pytest.raises(NoConnection, match=r"does not answer \(cache lookup failed\)"):
        await _use(pool, 0)
    monkeypatch.undo()
    assert len(await _backends(pool)) == CONNECTIONS


async def test_one_that_was_made_just_before_another_primary_was_found_is_not_given(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = PostgresConnection.connect, list[PostgresConnection]()

    async def connect(**kwargs: Any) -> PostgresConnection:
        if made:
            pool.primary.server = None  # the same address leads to the new one
        made.append(connection := await make(**kwargs))
        if len(made) == 1:
            found = replace(connection.standing, timeline=connection.standing.timeline + 1)
            asyncio.get_running_loop().call_soon(pool.primary.admit, connection.server, found)
        return connection

    monkeypatch.setattr(PostgresConnection, "connect", connect)
    async with pool.connection() as given:
        assert given is made[1] and made[0].closed


async def test_a_call_that_comes_while_the_server_is_away_is_answered_when_it_is_back_in_time(url: str) -> None:
    network = Proxy(urlsplit(url).port or 0)
    await network.open()
    async with _opened(through(network, url)) as pool:
        network.cut()
        call = asyncio.create_task(_use(pool, 0))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(call), 0.3)
        assert not call.done()
        await network.open()
        await call
    network.close()

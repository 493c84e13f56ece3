"""What the database says to one message concerns that message; what it says to all is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from structlog.testing import capture_logs

from shared.pipeline import Pipeline
from tests.store.books import ask
from tests.store.test_error_classes import refuse_poison, run_out_of_time
from tests.support.door import WAIT_SECONDS, a_body, open_door, signed
from tests.support.pipe import Rig
from tests.support.working import working
from workers.agents.functions import FunctionAgent

on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


async def _until(rig: Rig, sql: str, expected: object) -> None:
    """Wait until a query gives this one row's values."""
    async with asyncio.timeout(WAIT_SECONDS):
        while [tuple(row.values()) for row in await ask(rig.pipe.store, sql)] != [expected]:
            await asyncio.sleep(0.02)


async def test_an_answer_that_the_database_can_never_keep_is_set_aside_and_the_key_goes_on(rig: Rig) -> None:
    await refuse_poison(rig.pipe.store)
    async with working(rig.pipe, FunctionAgent(lambda text: "poison" if text == "bad" else f"answer to {text}")):
        bad, good = await rig.accept("bad"), await rig.accept("good")
        await _until(rig, f"SELECT state FROM inbox WHERE id = '{good.id}'", ("answered",))
    [dead] = await ask(rig.pipe.store, "SELECT ref, reason, attempts FROM dead")
    assert dead == {"ref": bad.id, "reason": "error", "attempts": rig.pipe.settings.max_attempts}
    assert await rig.transcript() == ["good", "answer to good"]


@asynccontextmanager
async def _read_only(url: str) -> AsyncIterator[None]:
    """The database refuses to write, as a standby does; connections that are open see it at once."""
    name = url.rpartition("/")[2]
    alter = f'ALTER DATABASE "{name}" SET default_transaction_read_only = '
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute((alter + "on").encode())
        await connection.execute(end, [name])
        try:
            yield
        finally:  # connections that were opened meanwhile stay read-only, as those to a demoted server do
            await connection.execute((alter + "off").encode())


@on_postgres
async def test_a_read_only_postgres_is_waited_for_and_spends_no_attempt(rig: Rig, database_url: str) -> None:
    ran, running, may_end = list[str](), asyncio.Event(), asyncio.Event()

    async def agent(text: str) -> str:
        ran.append(text)
        running.set()
        await may_end.wait()
        return f"answer to {text}"

    with capture_logs() as lines:
        async with working(rig.pipe, FunctionAgent(agent)):
            accepted = await rig.accept("hello")
            async with asyncio.timeout(WAIT_SECONDS):
                await running.wait()
            async with asyncio.timeout(WAIT_SECONDS), _read_only(database_url):
                may_end.set()
                while not any(line["event"] == "commit waits for the database" for line in lines):
                    await asyncio.sleep(0.02)
            await _until(rig, f"SELECT state, attempts FROM inbox WHERE id = '{accepted.id}'", ("answered", 1))
    assert ran == ["hello"]
    assert await ask(rig.pipe.store, "SELECT ref FROM dead") == []


@on_postgres
async def test_a_receiver_with_a_read_only_postgres_says_503_until_it_can_write(
    pipe: Pipeline, database_url: str
) -> None:
    body = a_body(id="evt_1")
    async with open_door(pipe) as door:
        async with _read_only(database_url):
            for _ in range(3):
                response = await door.post(body, signed(body))
                assert (response.status_code, int(response.headers["retry-after"]) > 0) == (503, True)
        async with asyncio.timeout(WAIT_SECONDS):
            while (response := await door.post(body, signed(body))).status_code == 503:
                await asyncio.sleep(0.02)
        assert response.json()["status"] == "accepted"


@on_postgres
async def test_a_commit_that_ran_for_too_long_is_made_again_and_spends_no_attempt(rig: Rig) -> None:
    ran = list[str]()

    async def agent(text: str) -> str:
        ran.append(text)
        return f"answer to {text}"

    await run_out_of_time(rig.pipe.store, "INSERT ON messages", times=2)
    async with working(rig.pipe, FunctionAgent(agent)):
        accepted = await rig.accept("hello")
        await _until(rig, f"SELECT state, attempts FROM inbox WHERE id = '{accepted.id}'", ("answered", 1))
    assert ran == ["hello"]
    assert await rig.transcript() == ["hello", "answer to hello"]


@on_postgres
async def test_a_message_whose_journal_entry_took_too_long_is_503_and_taken_when_it_comes_again(pipe: Pipeline) -> None:
    await run_out_of_time(pipe.store, "INSERT ON inbox", times=1)
    body = a_body(id="evt_1")
    async with open_door(pipe) as door:
        first, again = [await door.post(body, signed(body)) for _ in range(2)]
        assert (first.status_code, int(first.headers["retry-after"]) > 0) == (503, True)
        assert again.json()["status"] == "accepted"

"""A store that goes away: what can still be kept is accepted, the rest is 503, and everything resumes by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from shared.pipeline import open_pipeline
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from shared.store.database import open_database
from shared.store.database.postgres import pool
from shared.store.database.sqlite import connection
from tests.conftest import WEBHOOK_SECRET
from tests.support.door import API_KEY, WAIT_SECONDS, Door, a_body, open_door, served, signed, sse_events
from tests.support.outage import PostgresOutage, SqliteOutage, ValkeyOutage, processes
from tests.support.pipe import Rig

MakeSettings = Callable[..., Settings]
KEY = "agent:main:api:dm:c1"


async def _migrate(url: str) -> None:
    database = await open_database(url)
    await database.migrate()
    await database.close()


def _unavailable(response: httpx.Response) -> None:
    assert (response.status_code, response.json()) == (503, {"error": "temporarily unavailable"})
    assert int(response.headers["retry-after"]) > 0


async def _ready(door: Door, **down: str) -> bool:
    response = await door.client.get("/readyz")
    expected = {"ready": not down, "redis": "up", "database": "up", **down}
    return (response.status_code, response.json()) == (503 if down else 200, expected)


async def _until_ready(door: Door) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await _ready(door):
            await asyncio.sleep(0.05)


async def _until_accepted(door: Door, body: bytes) -> None:
    """Send again as a platform would, until it is taken."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (response := await door.post_api(body)).status_code == 503:
            await asyncio.sleep(0.05)
    assert response.status_code == 202


async def _until_answered(door: Door, ids: list[str]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        for id in ids:
            while (await door.client.get(f"/v1/messages/{id}", headers=dict(door.key))).json().get(
                "state"
            ) != "answered":
                await asyncio.sleep(0.05)


async def _everything_is_503(door: Door) -> None:
    """No route that needs the database answers otherwise, each with one line; liveness and metrics go on."""
    body = a_body(id="evt_1")
    door.lines.clear()
    _unavailable(await door.post(body, signed(body)))
    _unavailable(await door.post_api(body))
    _unavailable(await door.post(b"not json", signed(b"not json")))  # could not be recorded
    _unavailable(await door.client.get(f"/v1/messages/in_{'0' * 30}", headers=dict(door.key)))
    assert [(line["event"], line.get("status")) for line in door.lines] == [("request refused", 503)] * 4
    assert not [line for line in door.lines if "exc_info" in line]
    assert (await door.client.get("/healthz")).status_code == 200
    assert (await door.client.get("/metrics")).status_code == 200
    assert await _ready(door, database="down")


async def _all_is_well_again(door: Door, rig: Rig) -> None:
    await _until_ready(door)
    await _until_accepted(door, a_body(id="evt_1"))
    await rig.run_turns(KEY)
    assert await rig.transcript(KEY) == ["hello", "echo: hello"]
    assert (await door.stored())["dead"] == 0


@pytest.fixture
def sqlite_outage(tmp_path: Path) -> SqliteOutage:
    outage = SqliteOutage(tmp_path)
    asyncio.run(_migrate(outage.url))
    return outage


@pytest.fixture
def postgres_outage() -> Iterator[PostgresOutage]:
    outage = PostgresOutage()
    asyncio.run(_migrate(outage.url))
    yield outage
    outage.remove()


@pytest.fixture
def valkey_outage(tmp_path: Path) -> Iterator[ValkeyOutage]:
    outage = ValkeyOutage(tmp_path / "valkey")
    yield outage
    outage.stop()


@pytest.fixture
def settings_with(redis_url: str, tmp_path: Path) -> MakeSettings:
    """Settings for a database of the test's own."""

    def make(url: str) -> Settings:
        return Settings(
            _env_file=None,  # type: ignore[call-arg]
            redis_url=SecretStr(redis_url),
            database_url=SecretStr(url),
            data_dir=tmp_path,
            partitions=2,
            webhook=WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),)),
            api=ApiSettings(keys=(SecretStr(API_KEY),)),
        )

    return make


async def test_without_its_sqlite_file_a_receiver_says_503_until_it_is_back(
    sqlite_outage: SqliteOutage, settings_with: MakeSettings
) -> None:
    async with open_pipeline(settings_with(sqlite_outage.url)) as pipe, open_door(pipe) as door:
        sqlite_outage.stop()
        await _everything_is_503(door)
        sqlite_outage.start()
        await _all_is_well_again(door, Rig(pipe))


async def test_a_sqlite_file_that_another_program_keeps_locked_is_503_until_it_lets_go(
    sqlite_outage: SqliteOutage, settings_with: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    body = a_body(id="evt_1")
    async with open_pipeline(settings_with(sqlite_outage.url)) as pipe, open_door(pipe) as door:
        with closing(sqlite3.connect(sqlite_outage.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            _unavailable(await door.post(body, signed(body)))
            _unavailable(await door.post_api(body))
            other.execute("ROLLBACK")
        await _all_is_well_again(door, Rig(pipe))


async def test_without_postgres_a_receiver_says_503_until_it_is_back(
    postgres_outage: PostgresOutage, settings_with: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WAIT_SECONDS", 1.0)
    async with open_pipeline(settings_with(postgres_outage.url)) as pipe, open_door(pipe) as door:
        assert await _ready(door)
        postgres_outage.stop()
        await _everything_is_503(door)
        postgres_outage.start()
        await _all_is_well_again(door, Rig(pipe))


@pytest.fixture
async def door(make_settings: MakeSettings, valkey_outage: ValkeyOutage) -> AsyncIterator[Door]:
    settings = make_settings(redis_url=SecretStr(valkey_outage.url), sweep_seconds=0.2)
    async with open_pipeline(settings) as pipe, open_door(pipe) as opened:
        yield opened


async def test_without_redis_messages_are_kept_and_answered_after_its_return(
    door: Door, valkey_outage: ValkeyOutage
) -> None:
    with processes(door.pipe.settings, "work", "housekeep"):
        before = (await door.post_api(a_body(id="evt_0", text="0"))).json()["id"]
        await _until_answered(door, [before])
        valkey_outage.stop()
        kept = [await door.post_api(a_body(id=f"evt_{n}", text=str(n))) for n in range(1, 6)]
        assert [response.status_code for response in kept] == [202] * 5
        again = await door.post_api(a_body(id="evt_1", text="1"))
        assert (again.status_code, again.json()["id"]) == (200, kept[0].json()["id"])
        body = a_body(id="evt_w")
        assert (await door.post(body, signed(body))).json()["status"] == "accepted"
        assert await _ready(door, redis="down")
        assert (await door.client.get("/metrics")).status_code == 200
        assert not door.lines_at("error") and not [line for line in door.lines if "exc_info" in line]
        valkey_outage.start()
        await _until_ready(door)
        await _until_answered(door, [response.json()["id"] for response in kept])
        assert await Rig(door.pipe).transcript(KEY) == [text for n in range(6) for text in (str(n), f"echo: {n}")]
        fresh = await door.post_api(a_body(id="evt_6", text="6"))
        await _until_answered(door, [fresh.json()["id"]])


async def test_without_redis_and_without_journal_messages_are_503(
    make_settings: MakeSettings, valkey_outage: ValkeyOutage
) -> None:
    settings = make_settings(redis_url=SecretStr(valkey_outage.url), durability="redis")
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        body = a_body(id="evt_1")
        valkey_outage.stop()
        _unavailable(await door.post(body, signed(body)))
        _unavailable(await door.post_api(body))
        _unavailable(await door.client.get(f"/v1/messages/in_{'0' * 30}", headers=dict(door.key)))
        assert [(line["event"], line.get("status")) for line in door.lines] == [("request refused", 503)] * 3
        assert not any((await door.stored()).values())
        assert await _ready(door, redis="down")
        valkey_outage.start()
        await _all_is_well_again(door, Rig(pipe))


async def test_a_follower_stays_through_an_outage_of_redis(
    make_settings: MakeSettings, valkey_outage: ValkeyOutage
) -> None:
    settings = make_settings(redis_url=SecretStr(valkey_outage.url), sweep_seconds=0.2)
    async with open_pipeline(settings) as pipe, served(pipe) as door:
        with processes(settings, "work", "housekeep"):
            path = f"/v1/sessions/{KEY}/events"
            async with asyncio.timeout(WAIT_SECONDS), door.client.stream("GET", path, headers=dict(door.key)) as stream:
                events = sse_events(stream)
                assert await anext(events) == {}
                valkey_outage.stop()
                assert (await door.post_api(a_body())).status_code == 202
                assert await anext(events) == {}
                valkey_outage.start()
                while not (heard := await anext(events)):
                    pass
                assert heard["data"]["text"] == "echo: hello"
        await door.until_nobody_listens()
        assert not door.lines_at("error") and not door.records

"""Event streams last, and each holds connections: a key has so many, all keys together have so many, and none holds on to what
its reader does not take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from producers.server import connection
from shared import metrics
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings, NamedKey
from shared.settings import Settings
from tests.security.receiver import Line, Receiver, receiving, request_head, status_of
from tests.store.books import write
from tests.support.pipe import Rig, key_of
from tests.support.servers import Databases

KEYS = ("test-key", "other-key-0123456789", "third-key-0123456789")
CHAT = key_of(platform="api")
PATHS = dict(zip(KEYS, (CHAT, *(f"agent:main:api@{name}:dm:c1" for name in ("other", "third"))), strict=True))
MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@asynccontextmanager
async def limited(make_settings: MakeSettings, **limits: int) -> AsyncIterator[tuple[Pipeline, Receiver]]:
    named = {name: NamedKey(secrets=(SecretStr(key),)) for name, key in zip(("other", "third"), KEYS[1:], strict=True)}
    api = ApiSettings(keys=(SecretStr(KEYS[0]),), named_keys=named, **limits)  # type: ignore[arg-type]
    async with open_pipeline(make_settings(api=api)) as pipe, receiving(pipe) as receiver:
        yield pipe, receiver


async def follow(receiver: Receiver, key: str = KEYS[0]) -> tuple[int, dict[str, str], Line]:
    """Ask for a stream: the status, the headers, and the line."""
    reader, writer = await receiver.dial()
    writer.write(request_head(f"/v1/sessions/{PATHS[key]}/events", {"authorization": f"Bearer {key}"}, "GET"))
    status, headers = await status_of(reader), dict[str, str]()
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    return status, headers, (reader, writer)


async def until_taken(receiver: Receiver, key: str = KEYS[0]) -> Line:
    """Ask again and again, until there is a place."""
    async with asyncio.timeout(30):
        while True:
            status, _, line = await follow(receiver, key)
            if status == 200:
                return line
            assert status == 429
            line[1].close()
            await asyncio.sleep(0.02)


async def test_one_key_may_follow_so_many_sessions_and_others_are_not_counted(make_settings: MakeSettings) -> None:
    async with limited(make_settings, open_streams=2) as (_, receiver):
        lines = []
        for _ in range(2):
            status, _, line = await follow(receiver)
            assert status == 200
            lines.append(line)
        status, headers, _ = await follow(receiver)
        assert status == 429 and int(headers["retry-after"]) > 0
        assert (await follow(receiver, KEYS[1]))[0] == 200
        lines[0][1].transport.abort()  # without a word
        await until_taken(receiver)
        lines[1][1].close()
        await until_taken(receiver)


async def test_all_keys_together_may_follow_so_many_sessions(make_settings: MakeSettings) -> None:
    async with limited(make_settings, open_in_all=2) as (_, receiver):
        assert (await follow(receiver, KEYS[0]))[0] == 200
        _, _, (_, writer) = await follow(receiver, KEYS[1])
        status, headers, _ = await follow(receiver, KEYS[2])
        assert status == 429 and int(headers["retry-after"]) > 0
        writer.transport.abort()
        await until_taken(receiver, KEYS[2])


async def test_a_request_that_opens_no_stream_takes_no_place(make_settings: MakeSettings) -> None:
    async with limited(make_settings, open_streams=1) as (_, receiver):
        for path, method, extra in (
            (PATHS[KEYS[1]], "GET", {}),
            (CHAT, "HEAD", {}),
            (CHAT, "GET", {"last-event-id": "x"}),
        ):
            reader, writer = await receiver.dial()
            head = {"authorization": f"Bearer {KEYS[0]}", **extra}
            writer.write(request_head(f"/v1/sessions/{path}/events", head, method))
            assert await status_of(reader) in (200, 404, 422)
        assert (await follow(receiver))[0] == 200


async def test_a_reader_that_takes_nothing_is_cut_off_and_frees_its_place(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNREAD_SECONDS", 1.0)
    before = metrics.REFUSED.labels("slow reader")._value.get()
    async with limited(make_settings, open_streams=1) as (pipe, receiver):
        rig = Rig(pipe)
        await rig.accept("x" * 100_000, chat="c1", platform="api")
        await rig.run_turns(CHAT)
        for n in range(200):  # more than any socket takes
            await write(
                pipe.store,
                """INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
                   SELECT 'more ' || :n, turn_id, 1 + :n, session_key, destination, platform, payload, 'sent', created_at
                   FROM outbox WHERE ordinal = 0 OR ordinal = 1 ORDER BY id LIMIT 1""",
                n=n + 1,
            )
        status, _, (_, writer) = await follow(receiver)
        assert status == 200
        await until_taken(receiver)
        assert metrics.REFUSED.labels("slow reader")._value.get() == before + 1 and not writer.is_closing()

"""Where a message stands, whether all is well, and a session followed as it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import psycopg
import pytest
from pydantic import SecretStr

from shared import keys
from shared.lane_key import Destination
from shared.pipeline import Pipeline, open_pipeline
from shared.reading import replies as follow
from shared.reading.trace import trace
from shared.redis_servers import RedisServer
from shared.settings import Settings
from shared.store import outbox
from shared.store.database import Database, Step
from tests.support.door import API_KEY, Door, a_body, open_door, served, sse_events
from tests.support.pipe import Rig, key_of
from tests.support.proxy import Proxy
from tests.support.servers import Databases
from workers.agents.functions import FunctionAgent
from workers.delivery.deliver import deliver_parts
from workers.process.parts import open_parts

API_CHAT = key_of(platform="api")
ELSEWHERE = ("webhook", "telegram", "local")  # platforms whose conversations are no business of an API key


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


# Where it stands.


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_an_api_key_sees_no_message_of_another_platform(
    make_settings: Callable[..., Settings], durability: str, subtests: pytest.Subtests
) -> None:
    async with open_pipeline(make_settings(durability=durability)) as pipe, open_door(pipe) as door:
        rig = Rig(pipe)
        for platform in ELSEWHERE:
            with subtests.test(platform):
                id = (await rig.accept("private", platform=platform)).id
                waiting = await door.request("GET", f"/v1/messages/{id}", door.key)
                await rig.run_turns(key_of(platform=platform))
                answered = await door.request("GET", f"/v1/messages/{id}", door.key)
                unknown = await door.request("GET", f"/v1/messages/in_{'0' * 30}", door.key)
                assert waiting.status_code == answered.status_code == unknown.status_code == 404
                assert waiting.content == answered.content == unknown.content
        own = (await door.post_api(a_body(id="evt_own"))).json()
        shown = (await door.request("GET", f"/v1/messages/{own['id']}", door.key)).json()
        assert (shown["state"], shown["session_key"]) == ("pending", API_CHAT)


async def test_while_a_message_is_tried_again_its_reason_is_a_word_and_no_exception_text(door: Door, rig: Rig) -> None:
    async def fails(text: str) -> str:
        raise RuntimeError("canary: the key is sk-123")

    rig.agent = FunctionAgent(fails)
    id = (await door.post_api(a_body())).json()["id"]
    await rig.run_turns(API_CHAT)
    shown = (await door.request("GET", f"/v1/messages/{id}", door.key)).json()
    assert (shown["state"], shown["attempts"], shown["reason"]) == ("pending", 1, "error")
    traced = await trace(rig.pipe, id)
    assert traced is not None and traced.reason and "canary" in traced.reason  # an operator sees it all


async def test_a_message_shows_where_it_stands(door: Door, rig: Rig) -> None:
    id = (await door.post_api(a_body(id="evt_1"))).json()["id"]
    waiting = (await door.client.get(f"/v1/messages/{id}", headers=dict(door.key))).json()
    assert set(waiting) == {"id", "state", "session_key", "turn_id", "attempts", "reason", "timings"}
    assert (waiting["state"], waiting["turn_id"], set(waiting["timings"])) == ("pending", None, {"received"})
    await rig.run_turns("agent:main:api:dm:c1")
    done = (await door.client.get(f"/v1/messages/{id}", headers=dict(door.key))).json()
    assert (done["id"], done["state"], done["session_key"]) == (id, "answered", "agent:main:api:dm:c1")
    assert {"received", "claimed", "started", "committed"} <= set(done["timings"])


async def test_a_message_that_nobody_knows_is_404(door: Door, subtests: pytest.Subtests) -> None:
    for id in (
        "in_0",
        "in_" + "0" * 30,
        "%00",
        "in_%00" + "0" * 29,
        "x" * 5000,
        "%F0%9F%92%A9",
        "'--",
        "in_" + "0" * 31,
    ):
        with subtests.test(id=id):
            response = await door.request("GET", f"/v1/messages/{id}", door.key)
            assert (response.status_code, response.json()) == (404, {"error": "no such message"})


async def test_the_health_routes_answer(door: Door) -> None:
    await door.post_api(a_body())
    live, ready, metrics = [await door.client.get(path) for path in ("/healthz", "/readyz", "/metrics")]
    assert (live.status_code, live.json()) == (200, {"status": "alive"})
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "redis": "up", "database": "up"})
    assert metrics.status_code == 200 and metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = {line.split()[2] for line in metrics.text.splitlines() if line.startswith("# TYPE")}
    counters = ("accepted", "dedup_hit", "fence_rejected", "lease_lost", "redelivered", "dead_letter", "ambiguous_send")
    gauges = ("ready_keys", "in_flight", "waiting", "oldest_waiting_seconds", "dead_open", "stage_seconds")
    assert told >= {f"keyturn_{name}_total" for name in counters} | {f"keyturn_{name}" for name in gauges}
    assert 'keyturn_waiting{what="inbound"} 1.0' in metrics.text


# Following a session.


@asynccontextmanager
async def talking(rig: Rig, key: str, chat: str = "c1") -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Says something in a chat and has it answered and delivered."""
    async with open_parts(rig.pipe, rig.agent, "test") as parts:

        async def say(text: str) -> None:
            await rig.accept(text, chat=chat, platform="api")
            await rig.run_turns(key)
            _, lease = await rig.start(rig.pipe.deliveries, str(Destination("api", "", chat)))
            assert lease is not None
            await deliver_parts(lease, parts.deliveries)

        yield say


async def test_a_follower_hears_old_and_new_replies_and_goes_on_where_it_left(
    pipe: Pipeline, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KEEP_ALIVE_SECONDS", 3600.0)  # only the bell tells of something new
    path = f"/v1/sessions/{API_CHAT}/events"
    async with served(pipe) as door, talking(rig, API_CHAT) as say:
        await say("one")
        async with asyncio.timeout(60), door.client.stream("GET", path, headers=dict(door.key)) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = sse_events(response)
            first = await anext(events)
            assert (first["event"], first["data"]["text"], first["data"]["part"]) == ("reply", "echo: one", 1)
            assert await anext(events) == {}  # it listens
            await say("two")
            while not (second := await anext(events)):
                pass
            assert second["data"]["text"] == "echo: two" and int(second["id"]) > int(first["id"])
        await door.until_nobody_listens()
        await say("three")
        resumed = {**dict(door.key), "last-event-id": first["id"]}
        async with asyncio.timeout(60), door.client.stream("GET", path, headers=resumed) as response:
            events = sse_events(response)
            assert [(await anext(events))["data"]["text"] for _ in range(2)] == ["echo: two", "echo: three"]
        await door.until_nobody_listens()
        assert not door.lines_at("warning", "error") and not door.records


@pytest.fixture
def postgres_url(databases: Databases) -> Iterator[str]:
    url = databases.fresh_postgres()
    yield url
    databases.drop_postgres(url)


ANOTHER_PART = """
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT 'another', turn_id, 2, session_key, destination, platform, payload, 'sent', created_at FROM outbox LIMIT 1
RETURNING id"""


async def test_a_follower_hears_a_part_that_was_numbered_before_another_and_committed_after_it(
    redis_url: str, postgres_url: str
) -> None:
    heard: list[int] = []

    async def follow_three(pipe: Pipeline) -> None:
        async with aclosing(follow.replies(pipe, key_of(), 0)) as source:
            async for reply in source:
                heard.extend([reply.id] if reply is not None else [])
                if len(heard) == 3:
                    return

    async with open_pipeline(_on_postgres(redis_url, postgres_url)) as pipe, asyncio.timeout(60):
        rig, looks = Rig(pipe), Counting(pipe.store.database)
        await rig.accept("one")
        await rig.run_turns()
        async with await psycopg.AsyncConnection.connect(postgres_url) as slow:
            [[numbered]] = await (await slow.execute(ANOTHER_PART)).fetchall()
            await rig.accept("two")
            await rig.run_turns()
            pipe.store.outbox._database = looks
            following = asyncio.create_task(follow_three(pipe))
            while looks.reads < 3:
                await asyncio.sleep(0.005)
            await slow.commit()
        await following
    assert heard == sorted(heard) and numbered == heard[1]


async def test_a_follower_waits_for_no_transaction_that_does_not_write_to_the_outbox(
    redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "OPEN_SECONDS", 3600.0)
    async with open_pipeline(_on_postgres(redis_url, postgres_url)) as pipe, asyncio.timeout(60):
        rig = Rig(pipe)
        async with await psycopg.AsyncConnection.connect(postgres_url) as long:
            await long.execute("INSERT INTO facts (scope, name, value) VALUES ('s', 'n', 'v')")
            await rig.accept("one")
            await rig.run_turns()
            async with aclosing(follow.replies(pipe, key_of(), 0)) as source:
                reply = await anext(source)
            await long.rollback()
    assert reply is not None and reply.text == "echo: one"


async def test_a_follower_may_leave_while_a_part_before_the_next_is_not_committed(
    redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "OPEN_SECONDS", 3600.0)
    async with open_pipeline(_on_postgres(redis_url, postgres_url)) as pipe, asyncio.timeout(60):
        rig, looks = Rig(pipe), Counting(pipe.store.database)
        await rig.accept("one")
        await rig.run_turns()

        async def follow_on() -> None:
            async with aclosing(follow.replies(pipe, key_of(), 0)) as source:
                await anext(source)

        async with await psycopg.AsyncConnection.connect(postgres_url) as slow:
            await slow.execute(ANOTHER_PART)
            await rig.accept("two")
            await rig.run_turns()
            pipe.store.outbox._database = looks
            async with anyio.create_task_group() as readers:
                readers.start_soon(follow_on)
                while looks.reads < 3:
                    await asyncio.sleep(0.005)
                readers.cancel_scope.cancel()
            await slow.rollback()


def _on_postgres(redis_url: str, postgres_url: str) -> Settings:
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(postgres_url),
    )


async def test_a_follower_whose_connection_to_redis_fell_silent_listens_on_a_new_one(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KEEP_ALIVE_SECONDS", 0.2)
    address = urlsplit(redis_url)
    assert address.port is not None
    proxy, direct = Proxy(address.port), RedisServer(redis_url)
    channel = keys.events("agent:main:api:dm:c1")
    await proxy.open()
    server = RedisServer(redis_url.replace(f":{address.port}", f":{proxy.port}"))
    try:
        async with asyncio.timeout(60), follow.Bell(server, channel) as bell:
            while await direct.client.publish(channel, "ring") == 0:
                await bell.rings()  # it begins to listen
            while not await bell.rings():  # the one ring that reached it
                pass
            proxy.mute()
            while not await bell.rings():
                await direct.client.publish(channel, "ring")
    finally:
        await server.close()
        await direct.close()
        proxy.close()


class Counting:
    """A database that counts what is read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def read(self, *steps: Step) -> list[list[dict[str, Any]]]:
        found = await self._database.read(*steps)
        self.reads += 1
        return found


async def test_a_key_with_delimiters_is_followed_by_its_percent_encoded_form(pipe: Pipeline, rig: Rig) -> None:
    chat, key = "a:t=5/events?x#y%", "agent:main:api:dm:a%3At%3D5%2Fevents%3Fx%23y%25"
    path = f"/v1/sessions/{quote(key, safe='')}/events"
    async with served(pipe) as door, talking(rig, key, chat) as say:
        await say("hello")
        async with asyncio.timeout(60), door.client.stream("GET", path, headers=dict(door.key)) as response:
            assert (await anext(sse_events(response)))["data"]["text"] == "echo: hello"


async def test_an_api_key_follows_no_conversation_of_another_platform(
    door: Door, rig: Rig, subtests: pytest.Subtests
) -> None:
    for platform in ELSEWHERE:
        await rig.accept("private", platform=platform)
        await rig.run_turns(key_of(platform=platform))
        for key in (key_of(platform=platform), key_of("nobody", platform), f"agent:main:{platform}@work:dm:c1"):
            for method in ("GET", "HEAD"):
                with subtests.test(key=key, method=method):
                    async with asyncio.timeout(60):  # a stream would not end
                        response = await door.request(method, f"/v1/sessions/{key}/events", door.key)
                    assert response.status_code == 404
                    assert method == "HEAD" or response.json() == {"error": "no such session"}


async def test_followers_that_go_away_at_any_time_free_everything(
    pipe: Pipeline, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KEEP_ALIVE_SECONDS", 0.05)
    path = f"/v1/sessions/{API_CHAT}/events"
    async with served(pipe) as door, talking(rig, API_CHAT) as say:
        await say("x" * 100_000)
        before = len(asyncio.all_tasks())
        for n in range(20):
            async with door.socket() as (reader, writer):
                writer.write(door.head(path, f"authorization: Bearer {API_KEY}", method="GET"))
                if n % 2:
                    await reader.read(1 + n * 7000)  # some leave at once, some in the middle of an event or after it
        await door.until_nobody_listens()
        await door.until(lambda: len(asyncio.all_tasks()) <= before)
        assert not door.lines_at("warning", "error") and not door.records


async def test_a_follower_that_asks_for_nonsense_is_422(door: Door, subtests: pytest.Subtests) -> None:
    for last in ("x", "-1", "1.5", "\xb2", "9" * 19, "1 2"):
        with subtests.test(last=last):
            headers = [*door.key, ("last-event-id", last)]
            response = await door.request("GET", f"/v1/sessions/{API_CHAT}/events", headers)
            assert response.status_code == 422
            await door.refused(422)


async def test_following_what_is_no_session_key_is_422(door: Door, subtests: pytest.Subtests) -> None:
    for key in ("x", "agent:main:api:dm:", "agent:main:api:dm:%2541", "agent:main:api:dm:c1:x=1", "%00"):
        with subtests.test(key=key):
            response = await door.request("GET", f"/v1/sessions/{key}/events", door.key)
            assert response.status_code == 422
            await door.refused(422)

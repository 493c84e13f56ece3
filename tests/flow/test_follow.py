"""Where a message stands, whether all is well, and a session followed as it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest

from producers import follow
from shared.messages import Destination
from shared.pipeline import Pipeline
from tests.support.door import API_KEY, Door, a_body, open_door, served, sse_events
from tests.support.pipe import Rig, key_of
from workers.crew import open_crew
from workers.delivery.deliver import deliver_parts


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


# Where it stands.


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
    gauges = ("queue_depth", "in_flight", "waiting", "oldest_waiting_seconds", "dead_open", "stage_seconds")
    assert told >= {f"keyturn_{name}_total" for name in counters} | {f"keyturn_{name}" for name in gauges}
    assert 'keyturn_waiting{what="inbound"} 1.0' in metrics.text


# Following a session.


@asynccontextmanager
async def talking(rig: Rig, key: str, chat: str = "c1") -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Says something in a chat and has it answered and delivered."""
    async with open_crew(rig.pipe, rig.agent, "test") as crew:

        async def say(text: str) -> None:
            await rig.accept(text, chat=chat)
            await rig.run_turns(key)
            _, lease = await rig.start(rig.pipe.deliveries, str(Destination("webhook", "", chat)))
            assert lease is not None
            await deliver_parts(lease, crew.courier)

        yield say


async def test_a_follower_hears_old_and_new_replies_and_goes_on_where_it_left(
    pipe: Pipeline, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KEEP_ALIVE_SECONDS", 3600.0)  # only the bell tells of something new
    path = f"/v1/sessions/{key_of()}/events"
    async with served(pipe) as door, talking(rig, key_of()) as say:
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


async def test_a_key_with_delimiters_is_followed_by_its_percent_encoded_form(pipe: Pipeline, rig: Rig) -> None:
    chat, key = "a:t=5/events?x#y%", "agent:main:webhook:dm:a%3At%3D5%2Fevents%3Fx%23y%25"
    path = f"/v1/sessions/{quote(key, safe='')}/events"
    async with served(pipe) as door, talking(rig, key, chat) as say:
        await say("hello")
        async with asyncio.timeout(60), door.client.stream("GET", path, headers=dict(door.key)) as response:
            assert (await anext(sse_events(response)))["data"]["text"] == "echo: hello"


async def test_followers_that_go_away_at_any_time_free_everything(
    pipe: Pipeline, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KEEP_ALIVE_SECONDS", 0.05)
    path = f"/v1/sessions/{key_of()}/events"
    async with served(pipe) as door, talking(rig, key_of()) as say:
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
            response = await door.request("GET", f"/v1/sessions/{key_of()}/events", headers)
            assert response.status_code == 422
            await door.refused(422)


async def test_following_what_is_no_session_key_is_422(door: Door, subtests: pytest.Subtests) -> None:
    for key in ("x", "agent:main:webhook:dm:", "agent:main:webhook:dm:%2541", "agent:main:webhook:dm:c1:x=1", "%00"):
        with subtests.test(key=key):
            response = await door.request("GET", f"/v1/sessions/{key}/events", door.key)
            assert response.status_code == 422
            await door.refused(422)

"""The deployment's gauges: each is caused here, and what cannot be read is counted and not taken for 0."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from producers.server.app import build_app
from shared import keys, metrics
from shared.clock import now_ms
from shared.embedded import child, valkey
from shared.errors import Unavailable
from shared.lane.rq_names import SUSPENDED
from shared.messages import Part, Source
from shared.operating.pauses import pause
from shared.pipeline import Pipeline, open_pipeline
from shared.probe import open_probe
from shared.reading.conversation_query import ConversationQuery
from shared.reading.conversations import find_conversations
from shared.reading.gauges import GaugeCollector
from shared.reading.sessions import sessions
from shared.settings import Settings
from shared.settings.watching import MetricsBlock, SyntheticBlock
from shared.synthetic import OUTLET, is_synthetic, synthetic_key
from tests.support.pipe import Rig, key_of
from workers.agents.resolve import resolve
from workers.delivery.deliver import deliver_parts
from workers.delivery.synthetic import SyntheticSender
from workers.process.parts import open_parts
from workers.process.rq_worker import KeyturnWorker
from workers.process.run import open_rooms
from workers.upkeep import due
from workers.upkeep.due import DueKeys
from workers.upkeep.stateless import EndedRequests
from workers.upkeep.synthetic import SyntheticMessages

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    found = (sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples)
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


def of(found: Samples, name: str, /, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


async def gauges(pipe: Pipeline) -> Samples:
    return samples(await GaugeCollector(pipe).render())


def counted(name: str, /, **labels: str) -> float:
    return of(samples(metrics.render()), name, **labels) or 0.0


async def test_a_key_that_waits_for_a_worker_is_told_apart_from_mail_that_waits_for_its_key(rig: Rig) -> None:
    await rig.accept("one")
    await rig.accept("two")
    found = await gauges(rig.pipe)
    assert of(found, "keyturn_ready_keys", lane="turns") == 1
    assert (of(found, "keyturn_ready_oldest_seconds", lane="turns") or 0) > 0
    assert of(found, "keyturn_waiting", what="inbound") == 2
    assert (
        of(found, "keyturn_partition_depth_max", lane="turns")
        == of(found, "keyturn_partitions_waiting", lane="turns")
        == 1
    )
    assert of(found, "rq_jobs", queue="turns", status="queued") == 1
    lease = await rig.lease()
    found = await gauges(rig.pipe)  # a turn runs, and no worker added could help the second message
    assert of(found, "keyturn_ready_keys", lane="turns") == 0
    assert of(found, "keyturn_ready_oldest_seconds", lane="turns") == 0
    assert of(found, "keyturn_in_flight", lane="turns") == 1
    assert (of(found, "keyturn_oldest_waiting_seconds", what="inbound") or 0) > 0
    await lease.release(spent=True, delay=timedelta(minutes=5))
    assert of(await gauges(rig.pipe), "keyturn_delayed_keys", lane="turns") == 1


async def test_waits_are_counted_by_their_cause_when_a_turn_begins(rig: Rig) -> None:
    def seen(cause: str) -> float:
        return counted("keyturn_wait_seconds_count", cause=cause)

    before = {cause: seen(cause) for cause in ("worker", "key", "delay")}
    await rig.accept("one")
    await asyncio.sleep(0.05)
    await rig.accept("two")
    await asyncio.sleep(0.05)
    await rig.run_turns()  # the first waited for us; the second for the first, under the same lease
    assert {cause: seen(cause) - before[cause] for cause in before} == {"worker": 1, "key": 1, "delay": 0}
    waited = counted("keyturn_wait_seconds_sum", cause="worker")
    assert waited >= 0.09


async def test_slots_are_those_of_live_workers_by_lane(pipe: Pipeline) -> None:
    assert pipe.settings.redis_url is not None
    server = pipe.servers.all[0]
    client: Any = server.client
    stopping = asyncio.Event()
    connection = redis.Redis.from_url(pipe.settings.redis_url.get_secret_value())
    worker = KeyturnWorker(["turns-0", "control-0"], name="w1", connection=connection, prepare_for_work=False)
    worker.hostname, worker.pid = "here", 1
    async with open_parts(pipe, resolve("echo"), "w1") as parts:
        working = asyncio.create_task(worker.run(parts, server, open_rooms(pipe.settings), stopping))
        try:
            async with asyncio.timeout(60):
                while not await client.hget("rq:worker:w1", "slots"):
                    await asyncio.sleep(0.02)
            found = await gauges(pipe)
        finally:
            stopping.set()
            await working
    assert of(found, "keyturn_slots", lane="turns") == pipe.settings.concurrency
    assert of(found, "keyturn_slots", lane="deliveries") == 0  # it serves none
    assert of(found, "keyturn_slots_used", lane="turns") == 0
    assert of(found, "rq_workers", state="idle") == 1


async def test_a_store_that_is_away_is_counted_and_its_numbers_are_left_out(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = (
        counted("keyturn_collect_errors_total", store="redis"),
        counted("keyturn_collect_errors_total", store="database"),
    )
    away = make_settings(redis_url=f"redis://127.0.0.1:{child.free_port()}/0")
    async with open_pipeline(away) as pipe:

        async def no_answer(*_: object) -> Any:
            raise Unavailable("no")

        monkeypatch.setattr(pipe.store.database, "read", no_answer)
        found = await gauges(pipe)
    assert of(found, "keyturn_dependency_up", name="redis") == of(found, "keyturn_dependency_up", name="database") == 0
    assert {name for name, _ in found} == {"keyturn_dependency_up"}
    assert counted("keyturn_collect_errors_total", store="redis") == errors[0] + 1
    assert counted("keyturn_collect_errors_total", store="database") == errors[1] + 1


async def test_all_who_ask_within_a_second_share_one_answer(pipe: Pipeline) -> None:
    before = counted("keyturn_collect_seconds_count")
    collector = GaugeCollector(pipe)
    first, *others = await asyncio.gather(*(collector.render() for _ in range(20)))
    assert set(others) == {first} and counted("keyturn_collect_seconds_count") == before + 1


@pytest.mark.parametrize(
    ("scope", "held"),
    [("all", 1), ("lane:turns", 1), ("lane:deliveries", 1), ("lane:control", 0), ("platform:webhook", 0)],
)
async def test_a_pause_that_holds_synthetic_messages_shows(
    make_settings: Callable[..., Settings], scope: str, held: int
) -> None:
    async with open_pipeline(make_settings(synthetic=SyntheticBlock(seconds=3600))) as pipe:
        assert of(await gauges(pipe), "keyturn_synthetic_held") == 0
        await pause(pipe, scope, by="ann")
        assert of(await gauges(pipe), "keyturn_synthetic_held") == held


async def test_suspended_workers_hold_synthetic_messages(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(synthetic=SyntheticBlock(seconds=3600))) as pipe:
        await pipe.servers.all[0].client.set(SUSPENDED, 1)
        assert of(await gauges(pipe), "keyturn_synthetic_held") == 1
        await pipe.servers.all[0].client.delete(SUSPENDED)


async def test_the_time_of_the_last_synthetic_message_is_known_while_any_redis_server_is_away(
    make_settings: Callable[..., Settings], redis_url: str, tmp_path: Path
) -> None:
    first = valkey.start(tmp_path / "first")
    settings = make_settings(redis_url=SecretStr(f"{first.url},{redis_url}"), synthetic=SyntheticBlock(seconds=3600))
    async with open_pipeline(settings) as pipe:
        part = Part(1, "k", "s", Source(OUTLET, "1"), (), 1, 1, str(now_ms() - 2000))
        await SyntheticSender(pipe).send(part)
        first.stop()
        found = await gauges(pipe)
        assert 2 <= (of(found, "keyturn_synthetic_seconds") or 0) < 600


async def test_a_housekeeper_leaves_a_sign_of_life(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "keyturn_housekeeper_last_timestamp_seconds"
    assert of(await gauges(pipe), name) is None
    await DueKeys(pipe, pipe.servers.all[0]).look()
    assert abs((of(await gauges(pipe), name) or 0) - now_ms() / 1000) < 60
    await pipe.servers.all[0].client.set(keys.HOUSEKEEPER, "junk")
    assert of(await gauges(pipe), name) is None
    assert due.SIGN_SECONDS < 60  # the alert HousekeeperSilent


async def test_suspended_workers_show_as_paused_and_unsent_replies_by_platform(rig: Rig) -> None:
    assert of(await gauges(rig.pipe), "keyturn_paused", scope="rq") == 0
    await rig.pipe.servers.all[0].client.set(SUSPENDED, 1)
    await rig.accept("one")
    await rig.run_turns()
    await asyncio.sleep(0.01)
    found = await gauges(rig.pipe)
    assert of(found, "keyturn_paused", scope="rq") == 1
    assert (of(found, "keyturn_delivery_oldest_seconds", platform="webhook") or 0) > 0
    assert of(found, "keyturn_delivery_oldest_seconds", platform="local") == 0
    await rig.pipe.servers.all[0].client.delete(SUSPENDED)


async def test_pauses_show_by_what_they_hold_with_the_keys_behind_them(rig: Rig) -> None:
    assert of(await gauges(rig.pipe), "keyturn_paused", scope="platform") == 0
    await pause(rig.pipe, "platform:webhook", by="ann")
    await rig.accept("one")
    await rig.start(rig.pipe.turns, key_of())
    found = await gauges(rig.pipe)
    assert of(found, "keyturn_paused", scope="platform") == 1 and of(found, "keyturn_paused", scope="all") == 0
    assert of(found, "keyturn_paused_keys", lane="turns") == 1


# Synthetic messages.


async def test_a_synthetic_message_runs_the_whole_way_and_nothing_of_it_is_left(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pipeline(make_settings(synthetic=SyntheticBlock(seconds=3600))) as pipe:
        rig = Rig(pipe, agent=Failing())
        duty, second = SyntheticMessages(pipe), SyntheticMessages(pipe)
        assert 0 < await duty.look() <= 3600
        await second.look()  # another housekeeper: the same slot, no second message
        slot = now_ms() // 3_600_000
        key = str(synthetic_key(slot))
        assert is_synthetic(key)
        assert (await find_conversations(pipe, ConversationQuery(), 10)).conversations == ()
        assert (await pipe.store.overview.counts(10))["inbound_waiting"] == 1
        await rig.run_turns(key)
        async with open_parts(pipe, Failing(), "test") as parts:
            _, lease = await rig.start(pipe.deliveries, f"to:{OUTLET}:{slot}")
            assert lease is not None
            await deliver_parts(lease, parts.deliveries)
        found = await gauges(pipe)
        assert 0 <= (of(found, "keyturn_synthetic_seconds") or 0) < 600
        assert abs((of(found, "keyturn_synthetic_last_timestamp_seconds") or 0) - now_ms() / 1000) < 600
        assert await sessions(pipe.store, 10) == []
        assert await rig.transcript(key) == []
        monkeypatch.setattr("workers.upkeep.stateless.AFTER_MS", -1)
        await EndedRequests(pipe).look()
        assert await pipe.store.sessions.find(key) is None
        assert await rig.residue() == []


class Failing:
    """An agent that must not run."""

    async def run(self, turn: Any) -> Any:
        raise AssertionError("a synthetic message runs no agent")


# The port of processes that serve nothing else.


@contextlib.asynccontextmanager
async def probed(make_settings: Callable[..., Settings]) -> AsyncIterator[httpx.AsyncClient]:
    port = child.free_port()
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
    async with open_probe(make_settings(metrics=MetricsBlock(port=port)), "worker"), client:
        yield client


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_port_of_a_process_tells_no_more_than_a_receivers_metrics(
    make_settings: Callable[..., Settings], pipe: Pipeline
) -> None:
    receiver: Any = build_app(pipe)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(receiver), base_url="http://receiver") as client:
        known = samples((await client.get("/metrics")).content).keys()
    async with probed(make_settings) as client:
        answer = await client.get("/metrics")
        found = samples(answer.content)
        for path in ("/", "/readyz", "/openapi.json", "/v1/scale", "/metrics/", "/healthz/x"):
            assert (await client.get(path)).status_code == 404, path
    assert {series for series in found if not series[0].startswith(("process_", "python_"))} <= {
        *known,
        ("keyturn_process_info", (("kind", "worker"),)),
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_process_of_its_own_gives_its_metrics_on_a_port(make_settings: Callable[..., Settings]) -> None:
    async with probed(make_settings) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200 and "keyturn_turns_total" in answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        assert (await client.get("/other")).status_code == 404
        assert (await client.post("/metrics")).status_code == 405
        taken = make_settings(metrics=MetricsBlock(port=client.base_url.port or 0))
        async with open_probe(taken, "worker"):  # says so, and goes on
            pass
    async with open_probe(make_settings(), "worker"):
        pass

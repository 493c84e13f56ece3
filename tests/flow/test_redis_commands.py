"""`keyturn redis`, and what status, doctor and the dashboard say of a Redis server that is drained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from keyturn.dashboard.access import Role
from shared import draining
from shared.embedded import valkey
from shared.pipeline import Pipeline, open_pipeline
from shared.reading import drained
from shared.reading.drained import servers_now
from shared.settings import Settings
from tests.flow.test_cli import Cli, environment, lone_cli  # noqa: F401 (fixtures)
from tests.support.dashboard import visiting
from tests.support.pipe import Rig, key_of
from tests.support.working import working

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[valkey.Valkey]:
    """A Valkey beside the one of all tests."""
    server = valkey.start(tmp_path / "second")
    yield server
    with suppress(ProcessLookupError):
        server.stop()


@pytest.fixture
async def two(make_settings: Callable[..., Settings], redis_url: str, second: valkey.Valkey) -> AsyncIterator[Pipeline]:
    """A deployment with two Redis servers."""
    urls = SecretStr(f"{redis_url},{second.url}")
    async with open_pipeline(make_settings(redis_url=urls, partitions=32, sweep_seconds=0.2)) as pipe:
        yield pipe


@pytest.fixture
def cli(lone_cli: Cli, environment: pytest.MonkeyPatch, two: Pipeline) -> Cli:  # noqa: F811
    """Runs a command with these servers."""
    assert two.settings.redis_url is not None
    environment.setenv("KEYTURN_REDIS_URL", two.settings.redis_url.get_secret_value())
    environment.setenv("KEYTURN_DATABASE_URL", two.settings.database)
    environment.setenv("KEYTURN_PARTITIONS", "32")
    return lone_cli


def a_chat_on(pipe: Pipeline, server: int) -> str:
    there = pipe.servers.all[server]
    return next(chat for n in range(1000) if pipe.servers.of_key(key_of(chat := f"c{n}")) is there)


async def test_every_page_says_what_a_drained_server_holds_and_when_it_may_go(
    two: Pipeline, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, name = Rig(two), two.servers.all[1].name
    chat = a_chat_on(two, 1)
    await rig.accept("0", chat=chat)
    assert (
        await cli("redis", "drain", name)
    ).out == f"{name} is drained. `keyturn redis list` says when it is empty.\n"
    await draining.look(two.servers, two.store.draining)
    holds = "still holds 1 key: leave it in REDIS_URL"
    assert [one["verdict"] for one in (await cli("redis", "list", "--json")).json] == ["takes keys", holds]
    assert holds in (await cli("redis", "list")).out
    assert f"{name} {holds}" in (await cli("status")).out
    assert [one["may_go"] for one in (await cli("status", "--json")).json["drained"]] == [False]
    checks = (await cli("doctor", "--json")).json["checks"]
    assert f"is drained, and {holds}" in [check["detail"] for check in checks if check["check"] == f"redis {name}"]
    async with visiting(two) as visitor:
        await visitor.enter(Role.VIEW)
        assert holds in (await visitor.get("/queues")).text
    async with working(two):
        while (await servers_now(two))[1].verdict == holds:
            pass
        serving = [check for check in (await cli("doctor", "--json")).json["checks"] if "workers" in check["check"]]
        assert {check["level"] for check in serving} == {"ok"}
    assert "wait 15 seconds" in (await servers_now(two))[1].verdict
    monkeypatch.setattr(drained, "SETTLED_SECONDS", 0.0)
    assert (await servers_now(two))[1].verdict == "is empty: take it out of REDIS_URL"
    assert [row["action"] for row in await two.store.audit.page(2**62, 10)] == ["drain redis"]


async def test_draining_that_cannot_work_is_refused_in_a_sentence(two: Pipeline, cli: Cli) -> None:
    first, second = (server.name for server in two.servers.all)
    unknown = await cli("redis", "drain", "elsewhere:6379/0")
    assert unknown.code == 1 and f"it lists {first}, {second}" in unknown.err
    assert "is not drained" in (await cli("redis", "undrain", second)).err
    assert (await cli("redis", "drain", second)).code == 0
    assert "is drained already" in (await cli("redis", "drain", second)).err
    assert "the only server that takes keys" in (await cli("redis", "drain", first)).err
    assert (await cli("redis", "undrain", second)).out == f"{second} takes keys again.\n"


async def test_a_server_that_was_taken_out_is_listed_until_it_is_forgotten(
    two: Pipeline,
    cli: Cli,
    environment: pytest.MonkeyPatch,  # noqa: F811
    redis_url: str,
) -> None:
    name = two.servers.all[1].name
    await cli("redis", "drain", name)
    environment.setenv("KEYTURN_REDIS_URL", redis_url)
    [_, gone] = (await cli("redis", "list", "--json")).json
    assert (gone["name"], gone["is_listed"]) == (name, False)
    assert (await cli("redis", "undrain", name)).out == f"{name} is forgotten.\n"
    assert len((await cli("redis", "list", "--json")).json) == 1


async def test_where_every_server_is_drained_all_get_keys(two: Pipeline) -> None:
    for server in two.servers.all:
        await two.store.draining.begin(server.name, "ann")
    await draining.look(two.servers, two.store.draining)
    assert not two.servers.draining
    assert all("because every server is drained" in one.verdict for one in await servers_now(two))


async def test_with_durability_redis_a_drained_server_says_until_when_it_remembers_messages(
    two: Pipeline, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drained, "SETTLED_SECONDS", 0.0)
    await two.store.draining.begin(two.servers.all[1].name, "ann")
    async with open_pipeline(two.settings.model_copy(update={"durability": "redis"})) as pipe:
        assert "may then be answered again" in (await servers_now(pipe))[1].verdict

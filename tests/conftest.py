"""Fixtures: `pipe` is the whole pipeline on real servers, once on SQLite and once on PostgreSQL."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis.utils
import structlog
from pydantic import SecretStr

from shared import log, metrics
from shared.embedded import postgres, valkey
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.support import redis_roles
from tests.support.browser import LEFT_OUT, find_browser, is_required
from tests.support.buckets import BucketServer, running_bucket_server
from tests.support.pipe import Rig
from tests.support.servers import Databases, empty_redis, running_postgres, running_valkey

WEBHOOK_SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


BROWSER_TESTS = Path(__file__).parent / "browser"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--redis-roles", action="store_true", help="run under one Redis user per role")


def pytest_configure(config: pytest.Config) -> None:
    redis.utils.get_lib_version = cache(redis.utils.get_lib_version)  # tests' own clients: 4 ms for each connection
    if config.getoption("--redis-roles"):
        redis_roles.switch_on()
    if is_required() and find_browser() is None:
        raise pytest.UsageError(LEFT_OUT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if redis_roles.is_on:
        by_role = ", ".join(f"{name or 'by tests'} {count}" for name, count in sorted(redis_roles.calls.items()))
        terminalreporter.write_line(f"calls of Redis in this process: {by_role}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Where there is no browser, what needs one is left out, and the last line says so."""
    return True if collection_path == BROWSER_TESTS and find_browser() is None else None


def pytest_unconfigure(config: pytest.Config) -> None:
    chosen = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    meant = any(
        path == BROWSER_TESTS or path in BROWSER_TESTS.parents or BROWSER_TESTS in path.parents for path in chosen
    )
    if meant and find_browser() is None and not hasattr(config, "workerinput"):
        print(LEFT_OUT)


@pytest.fixture(autouse=True)
def foreseen() -> Iterator[Callable[[str], None]]:
    """Fails a test in which a background loop of this process survived an error, unless the test says which loop may."""
    before, allowed = _loop_errors(), set[str]()
    yield allowed.add
    more = {loop: count - before.get(loop, 0) for loop, count in _loop_errors().items() if loop not in allowed}
    assert not any(more.values()), f"background loops met errors that nobody foresaw: {more}"


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A test that sets up logging does so for itself: later tests would write to a standard error that is closed by then.

    Tracebacks are plain: structlog's own show every local value, which took four seconds each.
    """
    handlers, level = logging.root.handlers[:], logging.root.level
    log.reset()
    console = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], console])
    yield
    log.reset()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(autouse=True)
def nothing_refused() -> Iterator[None]:
    """With --redis-roles: fails a test in which a role was refused a command, a name or a channel."""
    redis_roles.refusals()
    yield
    assert redis_roles.refusals() == []


def _loop_errors() -> dict[str, float]:
    samples = (sample for family in metrics.LOOP_ERRORS.collect() for sample in family.samples)
    return {sample.labels["loop"]: sample.value for sample in samples if sample.name.endswith("_total")}


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[valkey.Valkey]:
    with running_valkey() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: postgres.Postgres) -> Databases:
    return Databases(postgres_server.url)


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[BucketServer]:
    with running_bucket_server() as server:
        yield server


@pytest.fixture
def redis_url(valkey_server: valkey.Valkey) -> str:
    empty_redis(valkey_server.url)
    return valkey_server.url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield databases.fresh_sqlite(tmp_path)
    else:
        with databases.lent_postgres() as url:
            yield url


@pytest.fixture
def make_settings(redis_url: str, database_url: str, tmp_path: Path) -> Callable[..., Settings]:
    """Settings for tests: everything at hand, nothing slow."""

    def make(**changes: Any) -> Settings:
        values: dict[str, Any] = {
            "redis_url": SecretStr(redis_url),
            "database_url": SecretStr(database_url),
            "data_dir": tmp_path,
            "partitions": 2,
            "backoff_seconds": 0.05,
            "webhook": WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),)),
            "api": ApiSettings(keys=(SecretStr("test-key"),)),
        }
        return Settings(_env_file=None, **{**values, **changes})  # type: ignore[call-arg]

    return make


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    return make_settings()


@pytest.fixture
async def pipe(settings: Settings) -> AsyncIterator[Pipeline]:
    async with open_pipeline(settings) as opened:
        yield opened


@pytest.fixture
async def rig(pipe: Pipeline) -> Rig:
    """The pipeline with hands: accept, wake, run one step at a time."""
    return Rig(pipe)

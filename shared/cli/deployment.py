"""How a command that looks or repairs reaches the deployment that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from shared.pipeline import Pipeline
    from shared.settings import Settings
    from shared.store import Store

T = TypeVar("T")


def ask(work: Callable[[Pipeline], Awaitable[T]]) -> T:
    """What `work` makes of the deployment. Unavailable, in one line, when a store that it needs does not answer."""
    import psycopg
    import redis

    from shared import log, settings
    from shared.embedded import running
    from shared.errors import Unavailable

    config = running.joined(settings.load())
    log.setup("error", "cli")  # what matters is printed; warnings of a pool that finds no server are not
    _check_urls(config)
    _check_file(config)
    try:
        return asyncio.run(_with_pipeline(config, work))
    except redis.RedisError as error:
        raise Unavailable(f"Redis: {type(error).__name__}") from None
    except psycopg.Error as error:
        text = f"PostgreSQL: {type(error).__name__}; is the schema up to date? See `keyturn migrate`"
        raise Unavailable(text) from None


async def _with_pipeline(config: Settings, work: Callable[[Pipeline], Awaitable[T]]) -> T:
    from shared.pipeline import open_pipeline

    async with open_pipeline(config) as pipe:
        return await work(pipe)


def ask_store(work: Callable[[Store, Settings], Awaitable[T]]) -> T:
    """What `work` makes of the database alone: nothing else has to run for it."""
    from shared import log, settings
    from shared.embedded import running

    config = running.joined(settings.load())
    log.setup("error", "cli")
    _check_file(config)
    return asyncio.run(_with_store(config, work))


async def _with_store(config: Settings, work: Callable[[Store, Settings], Awaitable[T]]) -> T:
    from shared.store import open_store

    store = await open_store(config.database, config.history_messages)
    try:
        return await work(store, config)
    finally:
        await store.database.close()


def sqlite_file(config: Settings) -> Path | None:
    """The file of an SQLite database; None for any other."""
    url = config.database
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None


def _check_urls(config: Settings) -> None:
    """A URL that cannot be read would be quoted in the error, with the password in it."""
    from redis.asyncio.connection import parse_url

    from shared.errors import ConfigurationError

    try:
        for url in config.redis_urls():
            parse_url(url)
    except ValueError:
        raise ConfigurationError("REDIS_URL cannot be read; escape special characters in it") from None


def _check_file(config: Settings) -> None:
    """Looking must not leave an empty database behind."""
    from shared.errors import Unavailable

    path = sqlite_file(config)
    if path is not None and not path.exists():
        raise Unavailable(f"no database at {path}: run `keyturn migrate`, or name another in KEYTURN_DATABASE_URL")

"""How a command that looks or repairs reaches the deployment that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from shared.pipeline import Pipeline
    from shared.settings import Settings
    from shared.store import Store

T = TypeVar("T")
LOOK_SECONDS = 1.0  # between two looks for a database that does not answer yet


def ask(work: Callable[[Pipeline], Awaitable[T]]) -> T:
    """What `work` makes of the deployment. Unavailable, in one line, when a store that it needs does not answer."""
    import redis

    from shared.errors import Unavailable

    config = _load()
    check_urls(config)
    _check_file(config)
    try:
        return _run(_with_pipeline(config, work))
    except redis.RedisError as error:
        raise Unavailable(f"Redis: {type(error).__name__}") from None


def with_settings(work: Callable[[Settings], Coroutine[Any, Any, T]], *, joined: bool = True) -> T:
    """What `work` makes of the settings, before anything is opened. Not `joined`: a running `up` is none of its servers."""
    from shared import log, settings

    config = _load() if joined else settings.load()
    if not joined:
        log.setup("error", "cli")
    if config.redis_url is not None:
        check_urls(config)
    return _run(work(config))


async def _with_pipeline(config: Settings, work: Callable[[Pipeline], Awaitable[T]]) -> T:
    from shared.pipeline import open_pipeline

    async with open_pipeline(config) as pipe:
        return await work(pipe)


def ask_store(work: Callable[[Store, Settings], Awaitable[T]]) -> T:
    """What `work` makes of the database alone: nothing else has to run for it."""
    config = _load()
    _check_file(config)
    return _run(_with_store(config, work))


def _load() -> Settings:
    from shared import log, settings
    from shared.embedded import running

    log.setup("error", "cli")  # what matters is printed; warnings of a pool that finds no server are not
    return running.joined(settings.load())


def _run(work: Coroutine[Any, Any, T]) -> T:
    import psycopg

    from shared.errors import Unavailable

    try:
        return asyncio.run(work)
    except psycopg.Error as error:
        text = f"PostgreSQL: {type(error).__name__}; is the schema up to date? See `keyturn migrate`"
        raise Unavailable(text) from None


async def _with_store(config: Settings, work: Callable[[Store, Settings], Awaitable[T]]) -> T:
    from shared.store import open_store

    store = await open_store(config.database, config.history_messages, config.database_connections)
    try:
        return await work(store, config)
    finally:
        await store.database.close()


async def migrate_when_there(config: Settings, tell: Callable[[str], None]) -> list[str]:
    """Bring the schema up to date as soon as the database answers. `tell` hears each time why it does not."""
    from shared.errors import Unavailable

    while True:
        try:
            return await migrate(config)
        except Unavailable as error:
            tell(str(error))
            await asyncio.sleep(LOOK_SECONDS)


async def migrate(config: Settings, *, dry_run: bool = False) -> list[str]:
    """Bring the schema up to date, or only look. Names the migrations; a ConfigurationError where no file can be made."""
    import sqlite3

    from shared.errors import ConfigurationError
    from shared.store.database import open_database

    try:
        database = await open_database(config.database)
        try:
            return await (database.pending_migrations() if dry_run else database.migrate())
        finally:
            await database.close()
    except OSError as error:
        raise ConfigurationError(f"DATABASE_URL: {sqlite_file(config)} cannot be made: {error.strerror}") from None
    except sqlite3.Error as error:
        raise ConfigurationError(f"DATABASE_URL: {sqlite_file(config)}: {error}") from None


def sqlite_file(config: Settings) -> Path | None:
    """The file of an SQLite database; None for any other."""
    url = config.database
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None


def check_urls(config: Settings) -> None:
    """A URL that cannot be read would be quoted in the error, with the password in it."""
    from redis.asyncio.connection import parse_url

    from shared.errors import ConfigurationError
    from shared.redis_url import sentinel_url

    try:
        for url in config.redis_urls():
            if sentinel_url(url) is None:
                parse_url(url)
    except ValueError:
        raise ConfigurationError(
            "REDIS_URL cannot be read: write redis://HOST:PORT/0, and escape special characters in it"
        ) from None


def _check_file(config: Settings) -> None:
    """Looking must not leave an empty database behind."""
    from shared.errors import Unavailable
    from shared.sqlite_place import place_in_words

    path = sqlite_file(config)
    if path is not None and not path.exists():
        raise Unavailable(
            f"no database at {place_in_words(path)}: run `keyturn migrate`, or name another in KEYTURN_DATABASE_URL"
        )

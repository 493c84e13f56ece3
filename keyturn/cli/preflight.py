"""What `keyturn up` looks at before it starts anything, so that a wrong setting ends it at once, in one sentence."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from keyturn.cli.deployment import check_urls
from keyturn.cli.doctor.blobs import check_bucket
from keyturn.cli.doctor.finding import Level, redacted, said
from keyturn.cli.doctor.platforms import check_platforms
from producers.server.bind import bind
from shared import log
from shared.errors import ConfigurationError, Unavailable
from shared.redis_clients import RedisClients
from shared.redis_tls import RedisTls
from shared.session_key import MAIN
from shared.settings import Settings
from workers.agents.named import check_name

ANSWER_SECONDS = 3


def check_before_start(settings: Settings, host: str, port: int) -> None:
    """ConfigurationError for what can never work, Unavailable for a server that does not answer now."""
    bind(host, port).close()
    for name in (MAIN, *settings.agents):
        chosen = settings.for_agent(name)
        check_name(chosen.agent, chosen)
    for block in settings.blocks:
        block.check()
    if settings.redis_url is not None:
        check_urls(settings)
        tls = settings.redis_tls.connecting()
        tls.check()
        for url in settings.redis_urls():
            _check_redis(url, tls)
    if settings.database.startswith(("postgresql:", "postgres:")):
        _check_postgres(settings.database)
    elif not settings.database.startswith("sqlite:///"):
        raise ConfigurationError("DATABASE_URL must begin with sqlite:/// or postgresql://")
    if settings.blobs.url is not None:
        asyncio.run(check_bucket(settings))


def tell_of_doubts(settings: Settings) -> None:
    """Log what will work differently from what somebody may expect: a platform without all its secrets, a bot for nobody."""
    for finding in check_platforms(settings):
        if finding.level is Level.WARN:
            log.get().warning(f"{finding.check}: {finding.detail}", fix=finding.fix)


def _check_redis(url: str, tls: RedisTls) -> None:
    limits: dict[str, Any] = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    try:
        with RedisClients(url, tls).blocking_client(retry=None, **limits) as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        text = f"REDIS_URL: {redacted(url)} does not answer ({said(error, url)}): start it, or correct the URL"
        raise Unavailable(text) from None


def _check_postgres(url: str) -> None:
    import psycopg  # a tenth of a second that a start on SQLite need not take

    from shared.store.database.postgres.servers import servers_of

    servers_of(url)
    try:
        psycopg.connect(url, connect_timeout=ANSWER_SECONDS).close()
    except psycopg.Error as error:
        text = f"DATABASE_URL: {redacted(url)} does not answer ({said(error, url)}): start it, or correct the URL"
        raise Unavailable(text) from None

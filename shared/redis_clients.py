"""Clients of one Redis: of the server at a URL, or of whatever server its Sentinels call the primary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.retry import Retry
from redis.sentinel import Sentinel

from shared import log, metrics
from shared.redis_tls import RedisTls
from shared.redis_url import sentinel_url

SENTINEL_SECONDS = 1.0  # for each one that is asked: a silent one leaves time for the next
# Made once: redis-py would parse the files of its installed package for every connection, 4 ms of CPU each.
_DRIVER = {"driver_info": DriverInfo(lib_version=redis.__version__)}
_LIMITS = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}


class RedisClients:
    """Makes clients. One that goes through Sentinels asks them again whenever it connects, and leaves a server that became a
    replica."""

    def __init__(self, url: str, tls: RedisTls) -> None:
        self._url = url
        self._tls = tls.options(url)
        self._service = sentinel_url(url)
        self._primary: tuple[str, int] | None = None
        self._sentinels: AsyncSentinel | None = None

    def client(self, **options: Any) -> aioredis.Redis:
        """One for asyncio."""
        options |= self._tls | _DRIVER
        if self._service is None:
            return aioredis.Redis.from_url(self._url, **options)
        if self._sentinels is None:
            asking = self._asking() | {"retry": AsyncRetry(NoBackoff(), 0)}
            self._sentinels = AsyncSentinel(self._service.sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        pool = _Pool(self._service.service, self._sentinels, self._found, **self._login(), **options)
        return aioredis.Redis.from_pool(pool)

    def blocking_client(self, **options: Any) -> redis.Redis:
        """One for threads."""
        options |= self._tls | _DRIVER
        if self._service is None:
            return redis.Redis.from_url(self._url, **options)
        asking = self._asking() | {"retry": Retry(NoBackoff(), 0)}
        sentinels = Sentinel(self._service.sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        login = self._login()
        client: redis.Redis = sentinels.master_for(self._service.service, **login, **options)  # type: ignore[no-untyped-call]
        return client

    async def close(self) -> None:
        """Close the connections to the Sentinels. Clients are closed by who has them."""
        if self._sentinels is not None:
            await self._sentinels.aclose()

    def _asking(self) -> dict[str, Any]:
        """How a Sentinel is asked."""
        assert self._service is not None
        login = {"username": self._service.sentinel_username, "password": self._service.sentinel_password}
        return {**_LIMITS, **_DRIVER, **login, **({"ssl": True} if self._service.tls else {}), **self._tls}

    def _login(self) -> dict[str, Any]:
        """How the server itself is reached, beside its address."""
        assert self._service is not None
        login = {"username": self._service.username, "password": self._service.password}
        return {**login, "db": self._service.database, **({"ssl": True} if self._service.tls else {})}

    def _found(self, address: tuple[str, int]) -> None:
        before, self._primary = self._primary, address
        if before not in (None, address):
            metrics.REDIS_FAILOVERS.inc()
            log.get().warning("Redis has a new primary", address=f"{address[0]}:{address[1]}")


class _Pool(SentinelConnectionPool):
    """Connections to the primary of a service. Calls `found` with the address that the Sentinels name, whenever they are asked."""

    def __init__(
        self, service: str, sentinels: AsyncSentinel, found: Callable[[tuple[str, int]], None], **options: Any
    ) -> None:
        super().__init__(service, sentinels, **options)  # type: ignore[no-untyped-call]
        self._tell = found

    async def get_master_address(self) -> tuple[str, int]:
        address: tuple[str, int] = await super().get_master_address()  # type: ignore[no-untyped-call]
        self._tell(address)
        return address

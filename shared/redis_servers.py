"""The Redis servers of a deployment: one, or several independent ones that share the partitions between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha1
from pathlib import Path
from typing import Any

import redis
import redis.asyncio as aioredis
from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import keys
from shared.errors import ConfigurationError, Unavailable

CALL_TIMEOUT_SECONDS = 5.0
# Refusals that pass: out of memory, read-only replica, still loading, a script running long, persistence failing.
_PASSING = ("OOM", "READONLY", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script. A line `-- include other.lua` stands for that file."""

    name: str
    source: str
    sha: str

    @classmethod
    def load(cls, path: Path) -> Script:
        lines = []
        for line in path.read_text().splitlines():
            included = line.removeprefix("-- include ") if line.startswith("-- include ") else None
            lines.append((path.parent / included).read_text() if included else line)
        source = "\n".join(lines)
        return cls(path.stem, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


class _ResetIsAnError:
    """Part of a connection class: uvloop's word for writing to a connection that was reset is one that redis-py does not know."""

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        try:
            await super().send_packed_command(*args, **options)  # type: ignore[misc]
        except RuntimeError as error:
            raise redis.exceptions.ConnectionError(str(error)) from None


class Server:
    """One Redis. Script calls made in the same tick of the event loop travel as one pipeline."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: aioredis.Redis = self.connect()
        self._connection: Any = self.client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        self._waiting: list[tuple[Script, Sequence[Any], Sequence[Any], asyncio.Future[Any]]] = []
        self._flush: asyncio.Task[None] | None = None

    def connect(self, **options: Any) -> aioredis.Redis:
        """A client of its own, without silent retries: a command runs once or its caller hears of it."""
        try:
            return self._client(**options)
        except ValueError:  # its text may quote the password
            raise ConfigurationError("REDIS_URL is not a URL that Redis clients know") from None

    def _client(self, **options: Any) -> aioredis.Redis:
        client = aioredis.Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=2, **options
        )
        pool = client.connection_pool
        pool.connection_class = type("Connection", (_ResetIsAnError, pool.connection_class), {})
        return client

    async def call(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """Run a script. Unavailable when Redis does not answer: it may then have run or not, so scripts may be repeated."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((script, keys, args, future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._send_waiting())
        return await future

    async def _send_waiting(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, []
            try:
                results = await self._send(calls)
            except Exception as error:
                results = [error] * len(calls)
            for (_, _, _, future), result in zip(calls, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(_translated(result))
                else:
                    future.set_result(result)

    async def _send(self, calls: Sequence[tuple[Script, Sequence[Any], Sequence[Any], Any]]) -> list[Any]:
        """One write, one answer per call. Packed by hiredis: in Python that alone would cost more than all the rest."""
        connection = self._connection
        packed = b"".join([pack_command(("EVALSHA", c[0].sha, len(c[1]), *c[1], *c[2])) for c in calls])
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                await connection.connect()
                await connection.send_packed_command(packed, check_health=False)
                results = [await self._answer(connection) for _ in calls]
                for i, result in enumerate(results):
                    if isinstance(result, redis.exceptions.NoScriptError):
                        script, names, args, _ = calls[i]
                        await connection.send_command("EVAL", script.source, len(names), *names, *args)
                        results[i] = await self._answer(connection)
                return results
        except BaseException:  # what the connection holds is unknown now
            await connection.disconnect(nowait=True)
            raise

    @staticmethod
    async def _answer(connection: Any) -> Any:
        try:
            return await connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error

    async def ping(self) -> bool:
        try:
            async with asyncio.timeout(2):
                return bool(await self.client.ping())
        except (redis.RedisError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        await self._connection.disconnect()
        await self.client.aclose()


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, redis.exceptions.ResponseError) and not isinstance(error, redis.exceptions.ConnectionError):
        return Unavailable(f"Redis: {error}") if str(error).startswith(_PASSING) else error
    if isinstance(error, redis.RedisError | OSError | TimeoutError):
        return Unavailable(f"Redis: {type(error).__name__}")
    return error


class Servers:
    """All Redis servers. A partition lives on one of them, chosen by rendezvous hashing, so adding one moves few."""

    def __init__(self, urls: Sequence[str], partitions: int) -> None:
        self.all = tuple(Server(url) for url in urls)
        self._of = [max(self.all, key=lambda server: _weight(server.url, p)) for p in range(partitions)]

    def of_partition(self, partition: int) -> Server:
        return self._of[partition]

    def of_key(self, key: str) -> Server:
        return self._of[keys.partition(key, len(self._of))]

    def partitions_of(self, server: Server) -> list[int]:
        return [p for p, owner in enumerate(self._of) if owner is server]

    async def close(self) -> None:
        for server in self.all:
            await server.close()


def _weight(url: str, partition: int) -> bytes:
    place = url.rpartition("@")[2]  # credentials may rotate without moving partitions
    return blake2b(f"{place}#{partition}".encode(), digest_size=8).digest()

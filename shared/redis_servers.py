"""The Redis servers of a deployment: one, or several independent ones that share the partitions between them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from hashlib import blake2b, sha1
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import redis
import redis.asyncio as aioredis
from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import keys, log
from shared.errors import ConfigurationError, Unavailable
from shared.placement import Placement
from shared.redis_clients import RedisClients
from shared.redis_tls import NO_TLS, RedisTls
from shared.redis_url import name_of, place_of
from shared.together import Together
from shared.value import value

CALL_TIMEOUT_SECONDS = 5.0
CALLS_AT_ONCE = 1024
SILENT_SECONDS = (
    5.0  # a drained server that did not answer is not asked again for so long: it may be drained because it is dead
)
# Refusals of a server that is the wrong one or not ready: behind the same address there may be a better one by now.
_LEAVE = frozenset({"READONLY", "MASTERDOWN", "LOADING"})
# Refusals that pass: these, out of memory, a script running long, persistence failing, a cluster that is not whole, a right
# that the user lacks until the operator gives it.
_PASSING = _LEAVE | {"OOM", "BUSY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "NOPERM"}
_ASK_AGAIN = _LEAVE | {"NOPERM"}  # a new connection asks for its rights
_REFUSED_IN_SCRIPT = "ACL failure in script"  # how a refusal begins that has no code of its own


@value
class Script:
    """A Lua script. A line `-- include other.lua` stands for that file."""

    name: str
    source: str
    sha: str
    commands: tuple[
        str, ...
    ] = ()  # that it cannot do without, but for those that need a channel: see shared/rights.lua

    @classmethod
    def load(cls, path: Path) -> Script:
        lines = []
        for line in path.read_text().splitlines():
            included = line.removeprefix("-- include ") if line.startswith("-- include ") else None
            lines.append((path.parent / included).read_text() if included else line)
        source = "\n".join(lines)
        commands = sorted(set(_COMMAND.findall(source)) - {"PUBLISH"})
        return cls(path.stem, source, sha1(source.encode(), usedforsecurity=False).hexdigest(), tuple(commands))


_COMMAND = re.compile(r"redis\.call\('([A-Z]+)'")
_RIGHTS = Script.load(Path(__file__).with_name("rights.lua"))


_Call = tuple[Script, Sequence[Any], Sequence[Any]]
_Answer = TypeVar("_Answer")


class _ResetIsAnError:
    """Part of a connection class: uvloop's word for writing to a connection that was reset is one that redis-py does not know."""

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        try:
            await super().send_packed_command(*args, **options)  # type: ignore[misc]
        except RuntimeError as error:
            raise redis.exceptions.ConnectionError(str(error)) from None


class RedisServer:
    """One Redis. Script calls made in the same tick of the event loop travel as one pipeline."""

    def __init__(self, url: str, tls: RedisTls = NO_TLS) -> None:
        self.url = url
        self._clients = RedisClients(url, tls)
        self.client: aioredis.Redis = self.connect()
        self._connection = self.connection()
        self._allowed: set[str] = set()  # scripts whose commands the connection's user may run
        self._lacking: set[str] = set()  # scripts of which was logged that they may not
        self._calls = Together(self._send, CALLS_AT_ONCE)
        self._silent_until = 0.0

    @property
    def name(self) -> str:
        """What people call it; without any secret."""
        return name_of(self.url)

    @property
    def is_silent(self) -> bool:
        """Whether a call got no answer a moment ago."""
        return monotonic() < self._silent_until

    def connect(self) -> aioredis.Redis:
        """A client of its own, without silent retries: a command runs once or its caller hears of it.

        No answer within CALL_TIMEOUT_SECONDS is an error. Only listening to a channel waits for as long as it takes.
        """
        try:
            return self._client()
        except ValueError:  # its text may quote the password
            raise ConfigurationError("REDIS_URL is not a URL that Redis clients know") from None

    def _client(self) -> aioredis.Redis:
        limits: dict[str, Any] = {"socket_timeout": CALL_TIMEOUT_SECONDS, "socket_connect_timeout": 2}
        client = self._clients.client(retry=Retry(NoBackoff(), 0), **limits)
        pool = client.connection_pool
        pool.connection_class = type("Connection", (_ResetIsAnError, pool.connection_class), {})
        return client

    def blocking_client(self, **options: Any) -> redis.Redis:
        """A client for what RQ does in its own way."""
        return self._clients.blocking_client(**options)

    def connection(self) -> Any:
        """A connection of its own, for one command at a time. It has no time limit: whoever uses it sets one."""
        try:
            connection: Any = self.client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except TypeError:  # redis-py looks at an option of the URL no earlier
            raise ConfigurationError("REDIS_URL has an option that Redis clients do not know") from None
        connection.socket_timeout = None
        return connection

    async def asked(self, answer: Awaitable[Any]) -> Any:
        """The answer to a command of `client`. Unavailable when there is none in time, or one that will pass."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                return await answer
        except (redis.RedisError, OSError, TimeoutError) as error:
            if code_of(error) in _LEAVE:
                await self.client.connection_pool.disconnect(inuse_connections=False)
            self._note_silence(error)
            raise _translated(error) from None

    def call(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> asyncio.Future[Any]:
        """Run a script. Unavailable when Redis does not answer: it may then have run or not, so scripts may be repeated."""
        return self._calls.call((script, keys, args))

    async def _send(self, calls: Sequence[_Call]) -> list[Any]:
        """One write, one answer per call."""
        connection = self._connection
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                if not connection.is_connected:
                    self._allowed.clear()
                    await connection.connect()
                for script, names, _ in calls:
                    if script.sha not in self._allowed:
                        await self._ask_for_rights(connection, script, names)
                answers = iter(await self._run(connection, [call for call in calls if call[0].sha in self._allowed]))
        except BaseException as error:  # what the connection holds is unknown now
            await connection.disconnect(nowait=True)
            self._note_silence(error)
            raise _translated(error) from None
        lacking = redis.exceptions.NoPermissionError(status_code="NOPERM")
        results = [next(answers) if script.sha in self._allowed else lacking for script, _, _ in calls]
        errors = [result for result in results if isinstance(result, BaseException)]
        if any(code_of(error) in _ASK_AGAIN for error in errors):
            await connection.disconnect(nowait=True)
        return [_translated(result) if isinstance(result, BaseException) else result for result in results]

    def _note_silence(self, error: BaseException) -> None:
        if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError | TimeoutError):
            self._silent_until = monotonic() + SILENT_SECONDS

    async def _ask_for_rights(self, connection: Any, script: Script, names: Sequence[Any]) -> None:
        """Find out whether the script would be refused in its middle, where it has written half. Once per connection."""
        await connection.send_command("EVAL", _RIGHTS.source, 1, names[0], *script.commands)
        refused = await self._answer(connection)
        if isinstance(refused, redis.exceptions.ResponseError):
            if code_of(refused) != "NOPERM":  # the server is busy, loading or the wrong one
                raise refused
            refused = [str(refused)]
        if not refused:
            self._allowed.add(script.sha)
            self._lacking.discard(script.sha)
        elif script.sha not in self._lacking:
            self._lacking.add(script.sha)
            fix = "give the user the rights of its role: keyturn deploy acl"
            log.get().error("Redis does not allow what we do", commands=refused, script=script.name, fix=fix)

    async def _run(self, connection: Any, calls: Sequence[_Call]) -> list[Any]:
        """What each call gives: a value or the server's error. Packed by hiredis: in Python that alone would cost more than
        all the rest."""
        packed = b"".join(
            [pack_command(("EVALSHA", script.sha, len(names), *names, *args)) for script, names, args in calls]
        )
        await connection.send_packed_command(packed, check_health=False)
        results = [await self._answer(connection) for _ in calls]
        for i, result in enumerate(results):
            if isinstance(result, redis.exceptions.NoScriptError):
                script, names, args = calls[i]
                await connection.send_command("EVAL", script.source, len(names), *names, *args)
                results[i] = await self._answer(connection)
        return results

    @staticmethod
    async def _answer(connection: Any) -> Any:
        try:
            return await connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error

    async def heard(
        self,
        channel: str,
        joined: Callable[[], None] | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[bytes]:
        """What is said on a channel, over a connection of its own. An error when that connection does not answer.

        `joined` is called when nothing that is said from then on can be missed while the connection lasts. Ends a few seconds
        after `wanted` says no.
        """
        async with self.connect() as client, client.pubsub() as pubsub:
            await pubsub.subscribe(channel)
            asked = False
            while wanted():
                said: Any = await pubsub.get_message(timeout=CALL_TIMEOUT_SECONDS)
                if said is not None:
                    asked = False
                    if said["type"] == "message":
                        yield said["data"]
                    elif said["type"] == "subscribe" and joined is not None:
                        joined()
                elif asked:
                    raise redis.ConnectionError("no answer on a channel's connection")
                else:  # nobody said anything, or the connection is dead: find out
                    asked = True
                    await pubsub.ping()

    async def ping(self) -> bool:
        try:
            async with asyncio.timeout(2):
                return bool(await self.client.ping())
        except (redis.RedisError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        await self._connection.disconnect()
        await self.client.aclose()
        await self._clients.close()


def code_of(error: BaseException) -> str:
    """The code that a server's refusal begins with, like OOM or WRONGTYPE; empty for any other error."""
    if not isinstance(error, redis.RedisError):
        return ""
    if str(error).startswith(_REFUSED_IN_SCRIPT):
        return "NOPERM"
    if error.status_code is not None:  # redis-py knows the code and took it out of the text
        return str(error.status_code)
    return str(error).partition(" ")[0] if isinstance(error, redis.ResponseError) else ""


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, redis.ResponseError):
        code = code_of(error)
        return Unavailable(f"Redis: {code}") if code in _PASSING else error
    if isinstance(error, redis.RedisError | OSError | TimeoutError):
        return Unavailable(f"Redis: {type(error).__name__}")
    return error


class Servers:
    """All Redis servers. A partition lives on one of them, chosen by rendezvous hashing, so adding one moves few.

    A server that is drained is no partition's home any more, and everything that it still holds is finished or moved. The
    processes of a deployment learn of it one after the other (shared/draining.py), so a key may be at two servers for a while:
    `leaving` names the other ones.
    """

    def __init__(self, urls: Sequence[str], partitions: int, tls: RedisTls = NO_TLS) -> None:
        self.all = tuple(RedisServer(url, tls) for url in urls)
        self._partitions = partitions
        self._placement = Placement(self.all, partitions, _weight)
        self.changed = (
            asyncio.Event()
        )  # set when partitions have moved; whoever waits for the next time takes the new event

    def drain(self, names: Collection[str]) -> bool:
        """Give keys to all servers but those of these names. False: that is so already."""
        draining = frozenset(server for server in self.all if server.name in names)
        placement = Placement(self.all, self._partitions, _weight, draining)
        if placement.draining == self._placement.draining:
            return False
        self._placement = placement
        over, self.changed = self.changed, asyncio.Event()
        over.set()
        return True

    @property
    def draining(self) -> frozenset[RedisServer]:
        return self._placement.draining

    def of_partition(self, partition: int) -> RedisServer:
        return self._placement.homes[partition]

    def of_key(self, key: str) -> RedisServer:
        return self._placement.homes[keys.partition(key, self._partitions)]

    def leaving(self, key: str) -> tuple[RedisServer, ...]:
        """The servers that are drained and may still have something of this key. Mostly none. One that does not answer is left
        out for a while: whoever asks must not wait for it each time."""
        if not self._placement.draining:
            return ()
        left = self._placement.left[keys.partition(key, self._partitions)]
        return tuple(server for server in left if not server.is_silent)

    def may_have(self, key: str) -> tuple[RedisServer, ...]:
        """Where a key is or may still be: the servers that it leaves, then its own."""
        return (*self.leaving(key), self.of_key(key))

    def partitions_of(self, server: RedisServer) -> list[int]:
        """The partitions whose queues are served on a server; those that leave it are, until it is out of the list."""
        return self._placement.served_by(server)

    async def each(self, ask: Callable[[RedisServer], Awaitable[_Answer]]) -> list[_Answer]:
        """What each server answers. Unavailable where one does not; one that is drained is left out then."""
        found = []
        for server in self.all:
            is_drained = server in self.draining
            if is_drained and server.is_silent:
                continue
            try:
                found.append(await ask(server))
            except Unavailable:
                if not is_drained:
                    raise
        return found

    def heard(self, channel: str, joined: Callable[[], None] | None = None) -> AsyncIterator[bytes]:
        """What is said on a channel, until the server where it is said is drained: then listen again."""
        server = self.of_key(channel)
        return server.heard(channel, joined, lambda: self.of_key(channel) is server)

    async def close(self) -> None:
        for server in self.all:
            await server.close()


def _weight(server: RedisServer, partition: int) -> bytes:
    return blake2b(f"{place_of(server.url)}#{partition}".encode(), digest_size=8).digest()


async def kept_text(servers: Servers, name: str) -> bytes | None:
    """What is kept under a name: at its own server, else at one that it leaves. None: nothing, or none of them answers."""
    for server in (servers.of_key(name), *servers.leaving(name)):
        try:
            found = await server.asked(server.client.get(name))
        except Unavailable:
            continue
        if isinstance(found, bytes):
            return found
    return None

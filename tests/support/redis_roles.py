"""`./run test --redis-roles …`: the product talks to Redis as the role that its code belongs to, and may do nothing else.

Every Valkey of a test gets the users of `keyturn deploy acl`. In the test's own process one pipeline plays all roles, so each
call goes over a connection of its role. The role is that of the outermost module of the product in the call's stack: what
`workers.upkeep` does is done as housekeeper, whoever of `shared` it calls. A task keeps the role of the code that started it.
`shared` without a caller belongs to no role and is done as worker, whose rights include those of all others. What a test does
itself (`server.client.flushall()`) is done as the server's admin. Processes get the URL of their command's role. After each test
the ACL LOG of every server that it had must be empty.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import redis
import redis.asyncio as aioredis

from shared import redis_servers
from shared.embedded import valkey
from shared.redis_roles import ROLES
from shared.redis_servers import RedisServer
from shared.redis_tls import NO_TLS, RedisTls

ADMIN = ""  # the server's own user, which tests have
WIDEST = "worker"
PASSWORD = "of-a-role"
PRODUCT = ("keyturn", "producers", "shared", "workers")
# The first that matches the outermost module of the product in a call's stack.
ROLE_OF_MODULE = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"workers\.upkeep\b", "housekeeper"),
        (r"workers\b", "worker"),
        (r"producers\.(listening|spool\w*)\b|producers\.\w+\.(listen|gateway|stream)\b", "listener"),
        (r"producers\b|shared\.door\b", "receiver"),
        (r"keyturn\.dashboard\b", "dashboard"),
        (r"keyturn\.cli\.restore\b|shared\.(operating\.restoring|redis_emptying)\b", "restorer"),
        (r"keyturn\b|shared\.(operating|reading)\b", "operator"),
    )
)
ROLE_OF_COMMAND = {
    "receive": "receiver",
    "listen": "listener",
    "work": "worker",
    "housekeep": "housekeeper",
    "dashboard": "dashboard",
    "restore": "restorer",
    "up": WIDEST,  # everything in one process
    "chat": WIDEST,
}

_role: ContextVar[str | None] = ContextVar("redis_role", default=None)
_watched: list[redis.Redis] = []
_refused: list[str] = []  # by servers that have ended
is_on = False
calls: Counter[str] = Counter()  # by role


def switch_on() -> None:
    """From now on, in this process."""
    global is_on
    is_on = True
    set_servers_of_roles()
    _give_users_to_every_valkey()
    _hear_of_missing_commands()
    _let_tasks_keep_their_role()


def set_servers_of_roles(on: bool = True) -> None:
    """Whether pipelines that are opened from now on play roles. A test that opens one for each role itself needs them not to."""
    redis_servers.RedisServer = _ServerOfRoles if on else RedisServer  # type: ignore[misc]


@contextmanager
def playing(name: str) -> Iterator[None]:
    """Everything in the block is done as this role."""
    token = _role.set(name)
    try:
        yield
    finally:
        _role.reset(token)


def users() -> list[str]:
    """Lines for the configuration of a Valkey."""
    return [" ".join(("user", role.name, "on", f">{PASSWORD}", *role.rights)) for role in ROLES] if is_on else []


def url_of(name: str, url: str) -> str:
    """The URL with the user of a role; of several, each."""
    user = rf"\g<1>{name}:{PASSWORD}@"
    return ",".join(
        re.sub(r"^(rediss?(?:\+sentinel)?://)(?:[^@/]*@)?", user, one) for one in re.split(r",(?=redis)", url)
    )


def of_process(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is about to be started, with the URL of its role."""
    given = dict(environment)
    if is_on and "keyturn.cli" in arguments and "KEYTURN_REDIS_URL" in given:
        command = [*arguments, ""][[*arguments].index("keyturn.cli") + 1]
        given["KEYTURN_REDIS_URL"] = url_of(role_of_command(command), given["KEYTURN_REDIS_URL"])
    return given


def role_of_command(command: str) -> str:
    return ROLE_OF_COMMAND.get(command, "operator")


def as_role(name: str, server: RedisServer) -> RedisServer:
    """What a role talks to this server with, once it has."""
    return server.of_role(name) if isinstance(server, _ServerOfRoles) else server


def watch(client: redis.Redis) -> None:
    """Look at this server's ACL LOG after each test, as long as it answers."""
    _watched.append(client)


def refusals() -> list[str]:
    """What any server refused since it was last asked for."""
    found, _refused[:] = list(_refused), []
    for client in list(_watched):
        try:
            found += _log_of(client)
        except redis.RedisError:  # it has ended
            _watched.remove(client)
    return found


def _log_of(client: redis.Redis) -> list[str]:
    log: Any = client.acl_log()
    client.acl_log_reset()
    names = ("username", "reason", "object", "context", "count")
    return [" ".join(f"{name}={entry[name]}" for name in names) for entry in log]


def _give_users_to_every_valkey() -> None:
    start, stop = valkey.start, valkey.Valkey.stop

    def start_with_users(data: Path, *, port: int = 0, options: tuple[str, ...] = ()) -> valkey.Valkey:
        server = start(data, port=port, options=(*options, *users()))
        # A test of hostile names may leave one in the log that is no text.
        watch(redis.Redis.from_url(server.url, decode_responses=True, encoding_errors="replace", socket_timeout=5))
        return server

    def look_and_stop(self: valkey.Valkey) -> None:
        _refused.extend(refusals())
        stop(self)

    valkey.start = start_with_users
    valkey.Valkey.stop = look_and_stop  # type: ignore[method-assign]


def _hear_of_missing_commands() -> None:
    """What RedisServer asks before it runs a script is in no ACL LOG."""
    ask = RedisServer._ask_for_rights

    async def ask_and_tell(self: RedisServer, connection: Any, script: Any, names: Sequence[Any]) -> None:
        await ask(self, connection, script, names)
        if script.sha in self._lacking:
            _refused.append(f"username={connection.username} lacks a command of {script.name}.lua")

    RedisServer._ask_for_rights = ask_and_tell  # type: ignore[method-assign]


def _let_tasks_keep_their_role() -> None:
    create_task = asyncio.BaseEventLoop.create_task

    def create_task_of_role(self: Any, coro: Any, *, context: Any = None, **options: Any) -> Any:
        context = context or copy_context()
        found = context.get(_role) or _role_of_stack(sys._getframe(1))
        if found is not None:
            context.run(_role.set, found)
        return create_task(self, coro, context=context, **options)

    asyncio.BaseEventLoop.create_task = create_task_of_role  # type: ignore[method-assign]


def _role_of_stack(frame: Any) -> str | None:
    """The role of the outermost product code before the test; None where that is no role's."""
    outermost = ""
    while frame is not None and not _module(frame).startswith("tests."):
        if _module(frame).partition(".")[0] in PRODUCT:
            outermost = _module(frame)
        frame = frame.f_back
    return next((name for pattern, name in ROLE_OF_MODULE if pattern.match(outermost)), None)


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _acting() -> str:
    """The role that a method of a server is called as."""
    frame = sys._getframe(3)
    if _module(frame).startswith("tests."):
        return ADMIN
    return _role.get() or _role_of_stack(frame) or WIDEST


class _ServerOfRoles(RedisServer):
    """One Redis, with connections of each role."""

    def __init__(self, url: str, tls: RedisTls = NO_TLS) -> None:
        self._tls = tls
        self._servers: dict[str, RedisServer] = {ADMIN: RedisServer(url, tls)}

    def _server(self) -> RedisServer:
        name = _acting()
        calls[name] += 1
        if name not in self._servers:
            self._servers[name] = RedisServer(url_of(name, self._servers[ADMIN].url), self._tls)
        return self._servers[name]

    @property
    def url(self) -> str:  # type: ignore[override]
        return self._server().url

    @property
    def is_silent(self) -> bool:
        return any(server.is_silent for server in self._servers.values())

    def of_role(self, name: str) -> RedisServer:
        return self._servers[name]

    @property
    def client(self) -> aioredis.Redis:  # type: ignore[override]
        return self._server().client

    def connect(self) -> aioredis.Redis:
        return self._server().connect()

    def blocking_client(self, **options: Any) -> redis.Redis:
        return self._server().blocking_client(**options)

    def connection(self) -> Any:
        return self._server().connection()

    def asked(self, answer: Any) -> Any:
        return self._server().asked(answer)

    def call(self, script: Any, keys: Any, args: Any) -> Any:
        return self._server().call(script, keys, args)

    def heard(self, channel: str, joined: Any = None, wanted: Any = lambda: True) -> Any:
        return self._server().heard(channel, joined, wanted)

    def ping(self) -> Any:
        return self._server().ping()

    async def close(self) -> None:
        for server in self._servers.values():
            await server.close()

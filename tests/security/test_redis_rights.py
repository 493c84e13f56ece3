"""A right that a role lacks: what needs it is refused whole. Nothing is half written, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from shared import keys
from shared.door import accept
from shared.errors import Unavailable
from shared.pipeline import open_pipeline
from shared.redis_roles import role
from shared.redis_servers import RedisServer, Script
from shared.settings import Settings
from tests.security.test_redis_roles import (  # noqa: F401 (fixtures)
    TIMES,
    acl_files,
    admin,
    every_role_at_a_running_turn,
    every_role_at_work,
    redis_url,
    urls,
    working_only,
)
from tests.support.pipe import Rig, an_inbound
from tests.support.working import keeping

MakeSettings = Callable[..., Settings]
Keyspace = Mapping[bytes, tuple[bytes, int]]  # name -> what DUMP says, and how many milliseconds it lives


@dataclass(frozen=True)
class Recorded:
    """A call of a script, as a role made it, and what was in Redis before."""

    role: str
    script: Script
    names: Sequence[Any]
    args: Sequence[Any]
    before: Keyspace


def look(server: Any) -> Keyspace:
    names = [*server.scan_iter("*", count=1000)]
    pipeline = server.pipeline()
    for name in names:
        pipeline.dump(name).pttl(name)
    answers = pipeline.execute()
    found = zip(names, zip(answers[::2], answers[1::2], strict=True), strict=True)
    return {name: (content, max(lives, 0)) for name, (content, lives) in found if content is not None}


def put_back(server: Any, keyspace: Keyspace) -> dict[bytes, bytes]:
    pipeline = server.pipeline().flushall()
    for name, (content, lives) in keyspace.items():
        pipeline.restore(name, lives, content)
    pipeline.execute()
    return contents(server)


def contents(server: Any) -> dict[bytes, bytes]:
    return {name: content for name, (content, _) in look(server).items()}


@contextmanager
def with_rights(server: Any, name: str, *changes: str, without: str = "") -> Iterator[None]:
    """A role has other rights until the block ends."""
    whole = ("resetkeys", *role(name).rights)
    server.execute_command("ACL", "SETUSER", name, *(right for right in whole if right != without), *changes)
    try:
        yield
    finally:
        server.execute_command("ACL", "SETUSER", name, *whole)


@pytest.fixture
def raw_admin(urls: dict[str, str]) -> Any:  # noqa: F811
    return redis.Redis.from_url(urls["admin"])


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, raw_admin: Any) -> dict[tuple[str, str], Recorded]:
    """Fills with the first call of each script by each role."""
    found: dict[tuple[str, str], Recorded] = {}
    run = RedisServer._run

    async def record(self: RedisServer, connection: Any, calls: Any) -> Any:
        for script, names, args in calls:
            if connection.username != "admin" and (connection.username, script.name) not in found:
                call = Recorded(connection.username, script, names, args, look(raw_admin))
                found[connection.username, script.name] = call
        return await run(self, connection, calls)

    monkeypatch.setattr(RedisServer, "_run", record)
    return found


async def test_each_right_that_is_taken_away_is_refused_whole(
    make_settings: MakeSettings,
    urls: dict[str, str],  # noqa: F811
    admin: Any,  # noqa: F811
    raw_admin: Any,
    recorded: dict[tuple[str, str], Recorded],
) -> None:
    await every_role_at_work(make_settings, urls, admin)
    await every_role_at_a_running_turn(make_settings, urls, admin)
    calls = [*recorded.values()]
    assert {call.role for call in calls} == {
        "receiver",
        "listener",
        "worker",
        "housekeeper",
        "dashboard",
        "operator",
    }
    half_done, done_without = [], []
    for call in calls:
        url, rights = urls[call.role], role(call.role)
        for command in call.script.commands:
            with with_rights(raw_admin, call.role, f"-{command}"):
                was_done, changed = await run_again(raw_admin, url, call)
            half_done += [(call.role, call.script.name, command)] if changed else []
            done_without += [(call.role, call.script.name, command)] if was_done else []
        for token in (*rights.names, *rights.channels):
            with with_rights(raw_admin, call.role, without=token):
                _, changed = await run_again(raw_admin, url, call)
            half_done += [(call.role, call.script.name, token)] if changed else []
    assert half_done == [] and done_without == []


async def run_again(admin: Any, url: str, call: Recorded) -> tuple[bool, bool]:  # noqa: F811
    """Whether it was done; and whether it was refused and has changed something all the same."""
    before = put_back(admin, call.before)
    server = RedisServer(url)
    try:
        await server.call(call.script, call.names, call.args)
        return True, False
    except Unavailable:
        return False, contents(admin) != before
    finally:
        await server.close()


async def test_a_right_that_goes_while_a_connection_is_open_cuts_one_call_at_most(
    make_settings: MakeSettings,
    urls: dict[str, str],  # noqa: F811
    raw_admin: Any,
    redis_url: str,  # noqa: F811
) -> None:
    async with open_pipeline(make_settings(redis_url=SecretStr(urls["receiver"]))) as pipe:
        lane = pipe.turns
        await lane.put("a", 1, b"m1")
        with with_rights(raw_admin, "receiver", "-hset"):
            with pytest.raises(Unavailable, match="NOPERM"):
                await lane.put("b", 1, b"m1")
            before = contents(raw_admin)
            for key in "cd":
                with pytest.raises(Unavailable, match="NOPERM"):
                    await lane.put(key, 1, b"m1")
            assert contents(raw_admin) == before
        await lane.put("c", 1, b"m1")
        assert raw_admin.exists(keys.mail("turns", "c"))


@pytest.mark.parametrize("lacking", ["receiver", "worker", "housekeeper"])
async def test_a_right_that_is_missing_for_a_while_costs_time_and_no_message(
    make_settings: MakeSettings,
    urls: dict[str, str],  # noqa: F811
    raw_admin: Any,
    redis_url: str,  # noqa: F811
    lacking: str,
) -> None:
    async with AsyncExitStack() as stack:
        opened = {
            name: await stack.enter_async_context(
                open_pipeline(make_settings(redis_url=SecretStr(urls[name]), **TIMES))
            )
            for name in ("receiver", "worker", "housekeeper")
        }
        refused = asyncio.Event()

        ask = RedisServer._ask_for_rights

        async def watched(self: RedisServer, connection: Any, script: Script, names: Sequence[Any]) -> None:
            await ask(self, connection, script, names)
            if connection.username == lacking and self._lacking:
                refused.set()

        stack.enter_context(pytest.MonkeyPatch.context()).setattr(RedisServer, "_ask_for_rights", watched)
        with with_rights(raw_admin, lacking, "-zadd"):
            accepted = await accept(opened["receiver"], an_inbound())
            await stack.enter_async_context(working_only(opened["worker"]))
            await stack.enter_async_context(keeping(opened["housekeeper"]))
            async with asyncio.timeout(90):
                await refused.wait()
        async with asyncio.timeout(90):
            while (row := await opened["worker"].store.journal.find(accepted.id)) is None or row["state"] != "answered":
                await asyncio.sleep(0.02)
        assert await Rig(opened["worker"]).transcript(accepted.session_key) == ["hello", "echo: hello"]

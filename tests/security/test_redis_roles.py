"""One Redis user per role: each can do its work, with nothing in Redis' ACL LOG, and nothing that is another's."""

from __future__ import annotations

import asyncio
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from typer.testing import CliRunner

from keyturn.cli.app import app
from keyturn.dashboard.access import Role
from shared import keys
from shared.door import accept
from shared.embedded import child, valkey
from shared.errors import CannotDo
from shared.lane.rq_names import queue_key
from shared.leader import Leader
from shared.operating.audit import Operator
from shared.operating.backup import back_up
from shared.operating.keys import release_key
from shared.operating.pauses import pause, resume
from shared.operating.restoring import WantedRestore, restore
from shared.pipeline import Pipeline, open_pipeline
from shared.redis_roles import ROLES, role
from shared.settings import Settings
from tests.support import redis_roles
from tests.support.dashboard import visiting
from tests.support.door import a_body, open_door
from tests.support.pipe import Rig, an_inbound
from tests.support.working import keeping
from workers.agents.functions import FunctionAgent
from workers.agents.resolve import resolve
from workers.process.parts import open_parts
from workers.process.run import LANES, _worker, open_rooms

ADMIN = "user admin on >admin ~* &* +@all\n"
TIMES = {"lease_seconds": 1.0, "heartbeat_seconds": 0.3, "sweep_seconds": 0.1}
NOBODY_MAY = (
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("GET", "other"),
    ("SET", "other", "x"),
    ("PUBLISH", "other", "x"),
    ("ACL", "LIST"),
    ("SCRIPT", "FLUSH"),
    ("EVAL", "return redis.call('GET', 'other')", "0"),
)
MAY_NOT = {
    "receiver": (
        ("BLMOVE", "rq:queue:q", "rq:queue:r", "LEFT", "RIGHT", "1"),
        ("SADD", "rq:workers", "x"),
    ),
    "listener": (("HGETALL", "rq:worker:w"), ("ZADD", "rq:wip:q", "1", "x")),
    "worker": (("BLPOP", "rq:queue:q", "1"), ("CLIENT", "KILL", "TYPE", "normal")),
    "housekeeper": (("BLMOVE", "rq:queue:q", "rq:queue:r", "LEFT", "RIGHT", "1"),),
    "dashboard": (("SADD", "rq:workers", "x"),),
    "restorer": (("BLPOP", "rq:queue:q", "1"), ("SHUTDOWN",)),
    "operator": (("BLPOP", "rq:queue:q", "1"), ("SHUTDOWN",)),
    "viewer": (
        ("SET", "kt:x", "1"),
        ("DEL", "rq:queues"),
        ("PUBLISH", "kt:events:news", "x"),
        ("EVAL", "return 1", "0"),
    ),
}


@pytest.fixture(autouse=True)
def own_connections() -> Iterator[None]:
    """Each pipeline of these tests has the URL of one role, also with --redis-roles."""
    redis_roles.set_servers_of_roles(False)
    yield
    redis_roles.set_servers_of_roles(redis_roles.is_on)


@pytest.fixture(scope="module")
def acl_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """What `keyturn deploy acl` writes, and the port that it is for."""
    directory, port = tmp_path_factory.mktemp("acl") / "redis", child.free_port()
    arguments = ["deploy", "acl", "--dir", str(directory), "--url", f"redis://127.0.0.1:{port}/0"]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    return directory, port


@pytest.mark.parametrize("url", ["redis+sentinel://h1", "redis+sentinel://h1/main/x", "redis+sentinel://:x/main"])
def test_a_sentinel_url_that_cannot_be_is_answered_by_the_name_of_the_option(tmp_path: Path, url: str) -> None:
    ended = CliRunner().invoke(app, ["deploy", "acl", "--dir", str(tmp_path / "redis"), "--url", url])
    said = f"{ended.output} {ended.exception}"
    assert ended.exit_code != 0 and "--url: " in said and "REDIS_URL" not in said
    assert not (tmp_path / "redis").exists()


def test_the_files_for_sentinels_and_replicas_are_named_where_they_are_written(tmp_path: Path) -> None:
    told = {
        url: CliRunner().invoke(app, ["deploy", "acl", "--dir", str(tmp_path / name), "--url", url]).output
        for name, url in (("one", "redis://h/0"), ("two", "redis+sentinel://h1,h2/main"))
    }
    for name in ("replica.conf", "sentinel.conf"):
        assert [name in said for said in told.values()] == [
            (tmp_path / there / name).exists() for there in ("one", "two")
        ]
        assert name in told["redis+sentinel://h1,h2/main"]


@pytest.fixture(scope="module")
def urls(acl_files: tuple[Path, int]) -> Iterator[dict[str, str]]:
    """A Valkey with these users: the URL of each role, and an admin's to look at it."""
    directory, port = acl_files
    users = directory.parent / "users.acl"
    users.write_text((directory / "users.acl").read_text() + ADMIN)
    lines = ["bind 127.0.0.1", f"port {port}", f'dir "{directory.parent}"', f'aclfile "{users}"', 'save ""']
    process = child.start(
        [valkey.binary(), "-"], dies_by=signal.SIGKILL, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write("\n".join(lines).encode())
    process.stdin.close()
    found = {role.name: _url(directory / f"{role.name}.env") for role in ROLES}
    found["admin"] = f"redis://admin:admin@127.0.0.1:{port}/0"
    client = redis.Redis.from_url(found["admin"])
    deadline = time.monotonic() + 60
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            assert time.monotonic() < deadline, "Valkey did not take the file"
            time.sleep(0.02)
    yield found
    process.kill()
    process.wait()


def _url(file: Path) -> str:
    return file.read_text().strip().partition("=")[2]


@pytest.fixture
def redis_url(urls: dict[str, str]) -> str:
    redis.Redis.from_url(urls["admin"]).flushall()
    return urls["admin"]


@pytest.fixture
def admin(urls: dict[str, str]) -> Any:
    client = redis.Redis.from_url(urls["admin"], decode_responses=True)
    client.acl_log_reset()
    return client


async def test_every_role_does_its_work_with_its_own_rights_and_nothing_is_refused(
    make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any
) -> None:
    await every_role_at_work(make_settings, urls, admin)
    assert refused(admin) == []


async def test_every_role_that_takes_messages_in_or_acts_reaches_a_running_turn_and_nothing_is_refused(
    make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any
) -> None:
    await every_role_at_a_running_turn(make_settings, urls, admin)
    assert refused(admin) == []


def refused(admin: Any) -> list[dict[str, Any]]:
    return [{name: entry[name] for name in ("username", "reason", "object", "context")} for entry in admin.acl_log()]


async def every_role_at_work(make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any) -> None:
    """A message whose wake was lost, a chat completion, a command, pages: each role takes part."""
    async with AsyncExitStack() as stack:
        opened = {
            role.name: await stack.enter_async_context(
                open_pipeline(make_settings(redis_url=SecretStr(urls[role.name]), **TIMES))
            )
            for role in ROLES
        }
        door = await stack.enter_async_context(open_door(opened["receiver"]))
        accepted = (await door.post_api(a_body(id="evt_1"))).json()
        session = accepted["session_key"]
        admin.delete(queue_key(keys.queue_name("turns", keys.partition(session, 2))))  # its wake is lost
        await stack.enter_async_context(working_only(opened["worker"]))
        await stack.enter_async_context(keeping(opened["housekeeper"]))
        async with asyncio.timeout(90):
            path = f"/v1/messages/{accepted['id']}"
            while (await door.request("GET", path, door.key)).json().get("state") != "answered":
                await asyncio.sleep(0.02)
            completed = await door.request("POST", "/v1/chat/completions", door.key, COMPLETION)
            assert completed.status_code == 200, completed.text
            assert (await door.post_api(a_body(text="/status"))).status_code == 202
            while len(await Rig(opened["operator"]).transcript(session)) < 2:
                await asyncio.sleep(0.02)
            assert b"keyturn_" in (await door.request("GET", "/metrics")).content
            assert (await door.request("GET", "/readyz")).status_code == 200
        name, second = keys.listener("signal", "1"), timedelta(seconds=1)
        async with Leader(opened["listener"].servers, name, ttl=5 * second, every=second):
            async with asyncio.timeout(30):
                while not admin.exists(name):
                    await asyncio.sleep(0.02)
        with pytest.raises(CannotDo, match="idle"):
            await release_key(opened["operator"], session)
        async with visiting(opened["dashboard"]) as visitor:
            await visitor.enter(Role.ADMIN)
            for path in ("/", "/conversations", "/queues"):
                assert (await visitor.get(path)).status_code == 200, path
        viewer: Any = redis.Redis.from_url(urls["viewer"])
        assert viewer.smembers("rq:queues") and viewer.llen("rq:queue:turns-0") == 0
        async with asyncio.timeout(30):
            while admin.exists(keys.state("turns", session)):
                await asyncio.sleep(0.02)


async def every_role_at_a_running_turn(
    make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any
) -> None:
    """Messages, steering, pauses and the stop of a turn that runs."""
    began = asyncio.Event()

    async def waits(text: str) -> str:
        began.set()
        await asyncio.Event().wait()
        return text

    async with AsyncExitStack() as stack:
        roles = ("receiver", "listener", "worker", "housekeeper", "dashboard", "operator")
        opened = {
            name: await stack.enter_async_context(
                open_pipeline(make_settings(redis_url=SecretStr(urls[name]), busy_mode="steer", **TIMES))
            )
            for name in roles
        }
        await stack.enter_async_context(working_only(opened["worker"], FunctionAgent(waits)))
        key = (await accept(opened["receiver"], an_inbound("begin", platform="local"))).session_key
        visitor = await stack.enter_async_context(visiting(opened["dashboard"]))
        await visitor.enter(Role.ADMIN)
        async with asyncio.timeout(90):
            await began.wait()
            for name in roles:  # housekeepers bring schedules and results of tasks
                await accept(opened[name], an_inbound("more", platform="local"))
                await accept(opened[name], an_inbound("/steer left", platform="local"))
            scope = "platform:local"
            await pause(opened["operator"], scope, by="op")
            await resume(opened["operator"], scope)
            for path in ("/pauses/pause", "/pauses/resume"):
                assert (await visitor.post(path, scope=scope)).status_code == 303
            stopped = await visitor.post("/conversation/stop", key=key)
            assert stopped.status_code == 303, stopped.text
            while admin.exists(keys.state("turns", key)):
                await asyncio.sleep(0.02)


COMPLETION = b'{"model": "main", "messages": [{"role": "user", "content": "hello"}], "stream": true}'


async def test_the_operator_may_use_rq_info_and_a_viewer_reads_the_same_names(
    make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any
) -> None:
    """`rq info` tidies RQ's registries whenever it looks, so it is not for a viewer: docs/guides/deploy.md says so."""
    async with open_pipeline(make_settings(redis_url=SecretStr(urls["receiver"]))) as pipe:
        await accept(pipe, an_inbound("hello"))
    assert "rq info" in role("operator").runs
    shown = rq_info(urls["operator"])
    assert shown.returncode == 0 and "turns-" in shown.stdout, shown.stderr
    assert refused(admin) == []
    assert "clean_registries" in rq_info(urls["viewer"]).stderr and "zremrangebyscore" in refused(admin)[0]["object"]
    viewer: Any = redis.Redis.from_url(urls["viewer"], decode_responses=True)
    assert sum(viewer.llen(name) for name in viewer.smembers("rq:queues")) == 1


def rq_info(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rq.cli import main; main()", "info", "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("role", [role.name for role in ROLES])
def test_a_role_is_refused_what_it_must_not_do(role: str, urls: dict[str, str], admin: Any) -> None:
    client: Any = redis.Redis.from_url(urls[role])
    assert client.ping()
    nobody_may = [command for command in NOBODY_MAY if (role, command[0]) != ("restorer", "SCAN")]
    for command in (*nobody_may, *MAY_NOT[role]):
        with pytest.raises(
            (redis.exceptions.NoPermissionError, redis.exceptions.ResponseError), match=r"(?i)permission|ACL"
        ):
            client.execute_command(*command)
    assert len(admin.acl_log()) >= len(MAY_NOT[role])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_restore_with_a_user_that_may_not_list_names_is_refused_whole(
    make_settings: Callable[..., Settings], urls: dict[str, str], admin: Any, tmp_path: Path
) -> None:
    settings, file = make_settings(redis_url=SecretStr(urls["operator"])), tmp_path / "backup"
    await back_up(settings, file, lambda _: None)
    database = tmp_path / "keyturn.db"
    before = database.read_bytes()
    admin.set("kt:stale", "1")
    wanted, by = WantedRestore(file), Operator("ann", "cli")
    with pytest.raises(CannotDo, match="use the role `restorer`"):
        await restore(settings, wanted, by, lambda _: None, lambda _: None)
    assert database.read_bytes() == before and admin.get("kt:stale") == "1"
    assert not list(tmp_path.glob("*before-restore*"))
    admin.acl_log_reset()
    joined = make_settings(redis_url=SecretStr(urls["restorer"]))
    assert (await restore(joined, wanted, by, lambda _: None, lambda _: None)).redis_names == 1
    assert admin.acl_log() == [] and admin.keys("*") == []


def test_nobody_gets_in_without_a_name(urls: dict[str, str]) -> None:
    for url in (re.sub(r"//.*@", "//", urls["worker"]), re.sub(r":[^:@]*@", ":wrong@", urls["worker"])):
        client: Any = redis.Redis.from_url(url)
        with pytest.raises(redis.exceptions.RedisError):
            client.ping()


def test_passwords_are_kept_when_the_files_are_written_again_and_the_servers_file_has_none(
    acl_files: tuple[Path, int],
) -> None:
    directory, port = acl_files
    before = {path.name: path.read_text() for path in directory.iterdir()}
    arguments = ["deploy", "acl", "--dir", str(directory), "--url", f"redis://127.0.0.1:{port}/0", "--json"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert {path.name: path.read_text() for path in directory.iterdir()} == before
    passwords = [re.findall(r":([^:@]+)@", text)[0] for name, text in before.items() if name.endswith(".env")]
    assert len(set(passwords)) == len(ROLES) and not any(p in before["users.acl"] for p in passwords)
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.glob("*.env")} == {0o600}


def test_each_of_several_servers_gets_the_user_and_a_password_of_ones_own_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "worker.env").write_text("KEYTURN_REDIS_URL=redis://worker:p%40ss@old:6379/0\n")
    for _ in range(2):
        arguments = ["deploy", "acl", "--dir", str(tmp_path), "--url", "redis://a:6379/0,rediss://b:6380/0"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        assert _url(tmp_path / "worker.env") == "redis://worker:p%40ss@a:6379/0,rediss://worker:p%40ss@b:6380/0"
        assert f"user worker on #{sha256(b'p@ss').hexdigest()} " in (tmp_path / "users.acl").read_text()
    arguments[-1] = "redis://a:6379/0,redis://me:secret@b:6379/0"
    assert CliRunner().invoke(app, arguments).exit_code == 2


@asynccontextmanager
async def working_only(pipe: Pipeline, agent: Any = None) -> AsyncIterator[None]:
    """A worker without a housekeeper."""
    stopping = asyncio.Event()
    rooms = open_rooms(pipe.settings)
    async with open_parts(pipe, agent or resolve("echo"), "test") as parts:
        [server] = pipe.servers.all
        running = asyncio.create_task(_worker(pipe, server, LANES, "test").run(parts, server, rooms, stopping))
        try:
            yield
        finally:
            stopping.set()
            await running

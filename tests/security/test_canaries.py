"""A whole deployment with secrets that can be recognised: they are in no log, no answer, no process list and no store."""

from __future__ import annotations

import base64
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import psycopg
import pytest
import redis

from shared.embedded import child, valkey
from tests.flow.told import PATIENCE_SECONDS, ROOT
from tests.support.door import a_body, signed
from tests.support.servers import Databases

WORD = "Kanarienvogel"
SIGNING = "whsec_S2FuYXJpZW52b2dlbCBLYW5hcmllbnZvZ2VsIDEyMzQ="
TEXT, NAME, USER = f"{WORD}text", f"{WORD}name", f"{WORD}user"
API_KEY, DATABASE_PASSWORD, CALLBACK_PASSWORD = f"{WORD}apikey", f"{WORD}database", f"{WORD}callback"


@dataclass
class Deployment:
    directory: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    url: str
    secrets: dict[str, str]

    def output(self) -> str:
        return (self.directory / "out").read_text() + (self.directory / "err").read_text()

    def keyturn(self, *arguments: str) -> str:
        """What a command prints, on both its outputs."""
        command = [sys.executable, "-m", "keyturn.cli", *arguments]
        ended = subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, timeout=120)
        return (ended.stdout + ended.stderr).decode()

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.05)


@contextmanager
def deployed(directory: Path, secrets: dict[str, str], **settings: str) -> Iterator[Deployment]:
    """`keyturn up` in a directory of its own, at the most talkative log level, ready."""
    directory.mkdir(exist_ok=True)
    values = {
        "webhook__secrets": SIGNING,
        "api__keys": API_KEY,
        "log_level": "debug",
        "partitions": "2",
        "max_attempts": "1",
        "agent": "tests.support.agents:obey",
        **settings,
    }
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPATH": str(ROOT)}
    environment |= {f"KEYTURN_{name.upper()}": value for name, value in values.items()}
    command = [sys.executable, "-m", "keyturn.cli", "up", "--port", "0"]
    with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
        process = child.start(command, cwd=directory, env=environment, stdout=out, stderr=err)
    try:
        deployment = Deployment(directory, environment, process, _ready(process, directory), secrets)
        yield deployment
    finally:
        child.stop(process, signal.SIGTERM, 60)


def _ready(process: subprocess.Popen[bytes], directory: Path) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (line := (directory / "out").read_text()).startswith("ready ") or not line.endswith("\n"):
        assert process.poll() is None and time.monotonic() < deadline, (directory / "err").read_text()
        time.sleep(0.05)
    return line.split()[1]


def trouble(client: httpx.Client) -> list[str]:
    """Everything that can go right and wrong with a message, once. What each was answered."""
    key = {"authorization": f"Bearer {API_KEY}"}
    signing_key = base64.b64decode(SIGNING.removeprefix("whsec_"))
    people = {"user": {"id": USER, "name": f"{NAME}\x1b[2J\r\n\x9b\u202e"}, "chat": {"id": "c1", "name": NAME}}
    bodies = [a_body(text=text, **people) for text in (TEXT, f"raise {TEXT}", f"refuse {TEXT}")]
    bodies += [a_body(text=TEXT, odd=TEXT), b"not json " + TEXT.encode(), b"[" * 100_000]
    answers = []
    for n, body in enumerate(bodies):
        headers = signed(body, f"msg_{n}", secret=signing_key)
        answers.append(client.post("/webhooks/webhook", content=body, headers=headers))
        answers.append(client.post("/webhooks/webhook", content=body, headers={**headers, "webhook-id": "x"}))
        answers.append(client.post("/v1/messages", content=body, headers=key))
        answers.append(client.post("/v1/messages", content=body, headers={"authorization": f"Basic {API_KEY}"}))
    answers.append(client.get(f"/v1/messages/{API_KEY}", headers=key))
    answers.append(client.get(f"/v1/sessions/{API_KEY}/events", headers=key))
    for path in ("/metrics", "/readyz", "/healthz", "/openapi.json", "/nowhere"):
        answers.append(client.get(path))
    return [repr((answer.status_code, answer.headers.raw, answer.text)) for answer in answers]


@dataclass
class Evidence:
    """Everything that a deployment showed in its life, by where it was seen."""

    secrets: dict[str, str]
    seen: dict[str, str]
    lines: list[dict[str, Any]]


@pytest.fixture(scope="module")
def evidence(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    """A deployment on Redis and PostgreSQL with passwords, through everything that can happen, to its end."""
    directory = tmp_path_factory.mktemp("canaries")
    server = valkey.start(directory / "valkey")
    database = databases.fresh_postgres().replace("postgres@", f"postgres:{DATABASE_PASSWORD}@")
    callback = f"http://user:{CALLBACK_PASSWORD}@127.0.0.1:{child.free_port()}/{WORD}path"
    settings = {"redis_url": server.url, "database_url": database, "webhook__callback_url": callback}
    secrets = {
        "webhook secret": SIGNING.removeprefix("whsec_"),
        "API key": API_KEY,
        "Redis password": str(urlsplit(server.url).password),
        "database password": DATABASE_PASSWORD,
        "callback password": CALLBACK_PASSWORD,
    }
    try:
        with deployed(directory / "up", secrets, **settings, delivery_max_attempts="1") as deployment:
            with httpx.Client(base_url=deployment.url, timeout=60, trust_env=False) as client:
                seen = {"answers": "\n".join(trouble(client))}
            deployment.until(lambda: deployment.output().count('"event":"dead letter"') >= 2)
            deployment.until(lambda: '"event":"reply buried"' in deployment.output())
            seen["process lists"] = "\n".join(_cmdlines(deployment.process.pid))
            seen["doctor"] = deployment.keyturn("doctor", "--json")
            for words in ("keys list --json", "dead list --json", "sessions list", "messages trace msg_0"):
                seen[words] = deployment.keyturn(*words.split())
            with closing(redis.Redis.from_url(server.url)) as store:
                seen["Redis"] = repr(_everything(store))
            seen["database"] = _rows(database)
            seen["files"] = _files(deployment.directory, but="up.json")
        seen["output"] = deployment.output()
        lines = [orjson.loads(line) for line in (directory / "up" / "err").read_text().split("\n") if line]
        yield Evidence(secrets, seen, lines)
    finally:
        server.stop()


def test_secrets_are_in_no_output_no_answer_no_process_list_and_no_store(evidence: Evidence) -> None:
    found = {
        (where, name)
        for where, text in evidence.seen.items()
        for name, secret in evidence.secrets.items()
        if secret in text
    }
    assert found == set()
    for name in ("up", "receive", "work", "housekeep"):
        assert f"\0{name}" in evidence.seen["process lists"]
    assert '"ok"' in evidence.seen["doctor"] and "msg_0" in evidence.seen["messages trace msg_0"]
    assert TEXT in evidence.seen["database"] and "rq:workers" in evidence.seen["Redis"]  # we looked where things are


def test_text_names_and_ids_of_users_are_in_no_line_above_debug(evidence: Evidence) -> None:
    """Each line is JSON: the control characters in those names broke none."""
    assert {line["process"] for line in evidence.lines} >= {"receive", "work"}
    for line in evidence.lines:
        if line["level"] != "debug":
            assert TEXT not in repr(line) and NAME not in repr(line) and USER not in repr(line), line


def test_files_of_an_embedded_deployment_are_for_its_user_alone(tmp_path: Path) -> None:
    secrets = {"webhook secret": SIGNING.removeprefix("whsec_"), "API key": API_KEY}
    before = os.umask(0o022)
    try:
        with deployed(tmp_path / "up", secrets) as deployment:
            data = deployment.directory / ".keyturn"
            assert _mode(data) == 0o700
            assert _mode(data / "up.json") == 0o600
            up = orjson.loads((data / "up.json").read_bytes())
            password = str(urlsplit(up["redis_url"]).password)
            assert len(password) >= 32
            assert not [line for line in _cmdlines(deployment.process.pid) if password in line]
            assert password not in deployment.output() + deployment.keyturn("doctor")
            assert password not in _files(deployment.directory, but="up.json")
            with httpx.Client(base_url=deployment.url, timeout=60, trust_env=False) as client:
                assert password not in "".join(trouble(client))
        assert not (data / "up.json").exists()
        with closing(sqlite3.connect(data / "keyturn.db")) as file:
            assert file.execute("SELECT COUNT(*) FROM inbox").fetchone()[0] > 0
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "settings",
    [
        {"KEYTURN_DATABASE_URL": f"postgresql://u:{WORD}@127.0.0.1:notaport/x"},
        {"KEYTURN_DATABASE_URL": f"postgresql://u:{WORD}@[broken/x"},
        {"KEYTURN_DATABASE_URL": f"mysql://u:{WORD}@127.0.0.1/x"},
        {"KEYTURN_REDIS_URL": f"redis://:{WORD}@127.0.0.1:notaport/0"},
        {"KEYTURN_REDIS_URL": f"http://:{WORD}@127.0.0.1/0"},
        {"KEYTURN_WEBHOOK__SECRETS": f"{WORD}"},
        {"KEYTURN_WEBHOOK__CALLBACK_URL": f"ftp://u:{WORD}@x/", "KEYTURN_WEBHOOK__SECRETS": SIGNING},
        {"KEYTURN_API__KEYS": f'["{WORD}"'},
        {"KEYTURN_API": f'{{"keys": "{WORD}", "nonsense": "{WORD}"}}'},
    ],
)
@pytest.mark.parametrize("command", ["receive", "migrate"])
def test_settings_that_do_not_work_are_told_without_their_values(
    settings: dict[str, str], command: str, tmp_path: Path
) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPATH": str(ROOT), "KEYTURN_REDIS_URL": "redis://127.0.0.1:1/0"}
    environment |= {"KEYTURN_DATABASE_URL": f"sqlite:///{tmp_path}/x.db", "KEYTURN_GRACE_SECONDS": "0", **settings}
    if "KEYTURN_WEBHOOK__CALLBACK_URL" in settings:
        command = "work" if command == "receive" else command
    arguments = [command, *(["--port", "0"] if command == "receive" else [])]
    process = child.start(
        [sys.executable, "-m", "keyturn.cli", *arguments],
        dies_by=signal.SIGKILL,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output, _ = process.communicate(timeout=15)  # some go on and try again
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    assert WORD not in output.decode(), output.decode()


# -- looking


def _cmdlines(root: int) -> list[str]:
    """The command lines of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def _everything(client: Any) -> list[Any]:
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda name: client.lrange(name, 0, -1),
        b"set": client.smembers,
        b"zset": lambda name: client.zrange(name, 0, -1),
        b"stream": lambda name: client.xrange(name),
        b"none": lambda name: None,
    }
    return [(name, readers[client.type(name)](name)) for name in client.scan_iter("*")]


def _rows(url: str) -> str:
    tables = ("inbox", "routes", "sessions", "messages", "turns", "outbox", "dead")
    with psycopg.connect(url) as connection:
        return repr([connection.execute(f"SELECT * FROM {table}".encode()).fetchall() for table in tables])


def _files(directory: Path, *, but: str) -> str:
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name not in (but, "out", "err")]
    return "".join(path.read_bytes().decode("latin-1") for path in paths)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)

"""deploy/kubernetes/overlays/sentinel: its pods' Valkeys and Sentinels, started here as there, follow each other under ACL users."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from keyturn.cli.app import app
from shared.embedded import child, valkey
from shared.redis_clients import RedisClients
from shared.redis_tls import NO_TLS
from tests.deploy.documents import DEPLOY, documents

OVERLAY = DEPLOY / "kubernetes/overlays/sentinel"
ADMIN = "user admin on >admin ~* &* +@all\n"
PODS = ("127.0.7.1", "127.0.7.2", "127.0.7.3")  # every address of 127.0.0.0/8 is this machine's
PATIENCE_SECONDS = 120.0


@dataclass
class Pods:
    """Three pods of the overlay, as far as a pod is its files and its processes."""

    directory: Path
    port: int = field(default_factory=child.free_port)
    sentinel_port: int = field(default_factory=child.free_port)
    processes: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'{pod}:{self.sentinel_port}' for pod in PODS)}/keyturn/0"

    def start(self, pod: str) -> None:
        """What the init container does, then what the two containers run."""
        data = self.directory / pod
        data.mkdir(exist_ok=True)
        [configure] = documents((OVERLAY / "configure.yaml").read_text())
        given = {"DATA": str(data), "SECRETS": str(self.directory / "redis"), "ME": pod, "FIRST": PODS[0]}
        given |= {"PORT": str(self.port), "SENTINEL_PORT": str(self.sentinel_port), "PATH": "/usr/bin:/bin"}
        subprocess.run(["sh", "-c", configure["data"]["configure.sh"]], env=given, check=True)
        self.processes[pod] = [
            self._run(pod, "valkey", str(data / "valkey.conf")),
            self._run(pod, "sentinel", str(data / "sentinel.conf"), "--sentinel"),
        ]

    def _run(self, pod: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [valkey.binary(), *arguments, "--bind", pod, "--logfile", str(self.directory / pod / f"{name}.log")]
        return child.start(command, dies_by=signal.SIGKILL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, pod: str) -> None:
        for process in self.processes.pop(pod):
            process.kill()
            process.wait()

    def admin(self, pod: str) -> Any:
        return redis.Redis(pod, self.port, username="admin", password="admin", decode_responses=True, socket_timeout=5)

    def primary(self) -> str:
        """The pod that all running Sentinels call the primary; empty while they do not agree."""
        named = set()
        for pod in self.processes:
            with redis.Redis(pod, self.sentinel_port, decode_responses=True, socket_timeout=5) as client:
                found: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "keyturn")
                named.add(found[0])
        return named.pop() if len(named) == 1 else ""

    def settled(self) -> bool:
        """All three Sentinels know each other and both replicas, which follow the primary."""
        state: Any = {}
        for pod in self.processes:
            with redis.Redis(pod, self.sentinel_port, decode_responses=True, socket_timeout=5) as client:
                state = client.execute_command("SENTINEL", "MASTER", "keyturn")
                if (int(state["num-slaves"]), int(state["num-other-sentinels"])) != (2, 2):
                    return False
        return self.primary() != "" and self.admin(self.primary()).info("replication")["connected_slaves"] == 2

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with suppress(redis.RedisError, OSError):
                if condition():
                    return
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self._logs()}"
            time.sleep(0.05)

    def _logs(self) -> str:
        return "\n".join(
            f"{path}:\n{path.read_text()[-1500:]}" for path in sorted(self.directory.glob("*/*.log")) if path.exists()
        )


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    pods = Pods(tmp_path)
    ended = CliRunner().invoke(app, ["deploy", "acl", "--dir", str(tmp_path / "redis"), "--url", pods.url])
    assert ended.exit_code == 0, ended.output
    with (tmp_path / "redis/users.acl").open("a") as file:
        file.write(ADMIN)
    yield pods
    for pod in list(pods.processes):
        pods.kill(pod)


def test_when_the_first_pod_dies_another_takes_over_and_it_comes_back_as_a_replica(pods: Pods) -> None:
    for pod in PODS:
        pods.start(pod)
    pods.until(pods.settled, "the pods to find each other")
    assert pods.primary() == PODS[0]
    url = (pods.directory / "redis/worker.env").read_text().strip().partition("=")[2]
    worker = RedisClients(url, NO_TLS).blocking_client(socket_timeout=5)
    pods.until(lambda: worker.set("kt:synthetic", "kept"), "a worker's write")
    pods.until(lambda: _has(pods, "kept"), "the replicas to have it")

    pods.kill(PODS[0])
    pods.until(lambda: pods.primary() not in ("", PODS[0]), "another primary")
    pods.until(lambda: worker.set("kt:synthetic", "later"), "a worker's write to the new primary")

    pods.start(PODS[0])
    pods.until(pods.settled, "the first pod to follow")
    pods.until(lambda: _has(pods, "later"), "all pods to have it")
    assert pods.primary() != PODS[0]
    for pod in PODS:
        refused = [(entry["username"], entry["object"]) for entry in pods.admin(pod).acl_log()]
        assert refused == [], (pod, refused)


def _has(pods: Pods, value: str) -> bool:
    return all(pods.admin(pod).get("kt:synthetic") == value for pod in PODS)


def test_an_alone_primary_takes_no_writes(pods: Pods) -> None:
    pods.start(PODS[0])
    client = pods.admin(PODS[0])
    pods.until(client.ping, "the server")
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        client.set("kt:synthetic", "1")


def test_passwords_of_servers_are_kept_and_a_new_one_reaches_a_pod_that_has_files_already(pods: Pods) -> None:
    files = pods.directory / "redis"
    before = {name: (files / name).read_text() for name in ("replica.conf", "sentinel.conf", "users.acl")}
    arguments = ["deploy", "acl", "--dir", str(files), "--url", pods.url]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    for name in ("replica.conf", "sentinel.conf"):
        assert (files / name).read_text() == before[name] and (files / name).stat().st_mode & 0o777 == 0o600
    assert (files / "users.acl").read_text() + ADMIN == before["users.acl"]
    pods.start(PODS[1])
    pods.kill(PODS[1])
    for name in ("replica.conf", "sentinel.conf"):
        (files / name).write_text(re.sub(r"\S+$", "another", (files / name).read_text()))
    pods.start(PODS[1])
    pods.kill(PODS[1])
    kept = (pods.directory / PODS[1] / "sentinel.conf").read_text()
    assert re.findall(r"^sentinel auth-pass keyturn (\S+)$", kept, re.M) == ["another"]
    assert f"replicaof {PODS[0]} {pods.port}" in (pods.directory / PODS[1] / "valkey.conf").read_text()


def test_every_role_is_told_of_all_three_sentinels_and_the_overlay_has_them() -> None:
    found = {document["kind"]: document for document in documents((OVERLAY / "valkey.yaml").read_text())}
    stateful = found["StatefulSet"]["spec"]
    assert stateful["replicas"] == 3 and stateful["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["clusterIP"] == "None" and found["Service"]["spec"]["publishNotReadyAddresses"]
    page = (DEPLOY.parent / "docs/guides/deploy-kubernetes.md").read_text()
    hosts = ",".join(f"valkey-{number}.valkey:26379" for number in range(3))
    assert f"--url redis+sentinel://{hosts}/keyturn/0" in page
    assert "--from-file=redis/replica.conf" in page

"""`keyturn up`: starts everything as child processes, restarts what dies, drains on Ctrl-C."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis
from pydantic import SecretStr

from keyturn.cli.dashboard import login_link
from keyturn.cli.deployment import migrate
from keyturn.cli.forking import ChildProcess, ForkServer
from keyturn.cli.preflight import check_before_start, tell_of_doubts
from keyturn.dashboard.access import Role
from producers.server.bind import bind
from shared import keys, log
from shared.embedded import child, running, valkey
from shared.errors import ConfigurationError, Unavailable
from shared.lane.rq_names import WORKERS, worker_key
from shared.redis_clients import RedisClients
from shared.settings import PREFIX, Settings
from shared.terminal import has_terminal

READY_SECONDS = 60.0
RESTART_SECONDS = 0.5
DASHBOARD_HOST = "127.0.0.1"
PRODUCERS = ("receive", "listen ")  # the children that read their settings again on SIGHUP
METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
SETTINGS_CANNOT_WORK = 78  # exit code of a process that has said which


@dataclass
class Child:
    """A child process that is started again when it ends."""

    name: str
    arguments: tuple[str, ...]
    process: ChildProcess | None = None
    restart_at: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Up:
    """All processes of `keyturn up`. A child that ends is started again; Ctrl-C drains all, a second one stops them now."""

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        self._settings = settings.model_copy(update={"log_dir": settings.log_directory})
        self._host = host
        self._port = port
        self._dashboard_port = 0
        self._signals = 0  # one: drain; two: stop now
        self._reload = False
        self._has_terminal = has_terminal()
        self._kept: list[Child] = []
        self._fork_server: ForkServer

    def run(self) -> None:
        """Returns after Ctrl-C or SIGTERM, when everything has drained. What cannot work is said before anything starts."""
        settings = self._settings
        with running.alone(settings.data_dir):
            log.setup_for(settings, "up")
            check_before_start(settings, self._host, self._port)
            tell_of_doubts(settings)
            self._dashboard_port = _dashboard_port(settings, self._port)
            self._port = self._port or child.free_port()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
                signal.signal(signal.SIGHUP, self._hung_up)
            samples = _empty_samples(settings)
            self._fork_server = ForkServer({**os.environ, METRICS_DIRECTORY: samples})  # imports while servers start
            embedded = None
            if settings.redis_url is None:
                log.get().info("starting Valkey", directory=str(settings.data_dir / "valkey"))
                embedded = valkey.start(settings.data_dir / "valkey")
                settings = settings.model_copy(update={"redis_url": SecretStr(embedded.url)})
            try:
                log.get().info("bringing the database's schema up to date")
                asyncio.run(migrate(settings))
                self._keep_running(settings)
            finally:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)  # we are leaving: the exit code shall be ours
                self._fork_server.close()
                if embedded is not None:
                    embedded.stop()

    @property
    def _dashboard_url(self) -> str:
        return f"http://{DASHBOARD_HOST}:{self._dashboard_port}"

    @property
    def _stopping(self) -> bool:
        return self._signals > 0

    def _stop(self, *_: object) -> None:
        self._signals += 1

    def _hung_up(self, *_: object) -> None:
        """SIGHUP asks for the settings to be read again, unless it comes from a terminal that was closed."""
        if self._has_terminal and not has_terminal():
            self._stop()
        else:
            self._reload = True

    def _tell_producers(self) -> None:
        """Pass SIGHUP on to the processes that know it."""
        if self._reload:
            self._reload = False
            for kept in self._kept:
                if kept.process is not None and kept.alive and kept.name.startswith(PRODUCERS):
                    kept.process.send_signal(signal.SIGHUP)

    def _keep_running(self, settings: Settings) -> None:
        first = [Child("receive", ("receive", "--host", self._host, "--port", str(self._port)))]
        first += [Child("work 1", ("work",)), Child("housekeep", ("housekeep",))]
        first += [Child(f"listen {name}", ("listen", name)) for name in settings.listening]
        if settings.dashboard.enabled:
            first.append(Child("dashboard", ("dashboard", "--no-link", "--port", str(self._dashboard_port))))
        # The first worker says what is wrong with the agent; the others would only repeat it.
        others = [Child(f"work {n}", ("work",)) for n in range(2, settings.workers + 1)]
        environment = _environment(settings)
        url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"
        urls = [url, self._dashboard_url] if settings.dashboard.enabled else [url]
        try:
            for group in (first, others):
                self._start_all(group, environment)
                self._wait(urls, settings, environment)
            if not self._stopping:
                self._announce(url, settings)
            while not self._stopping:
                self._restart_dead(environment)
                self._tell_producers()
                time.sleep(0.1)
        finally:
            self._drain(settings)

    def _start_all(self, group: Sequence[Child], environment: dict[str, str]) -> None:
        if group:
            log.get().info(f"starting {', '.join(kept.name for kept in group)}")
        self._kept += group
        for kept in group:
            self._start(kept, environment)

    def _start(self, kept: Child, environment: dict[str, str]) -> None:
        kept.process = self._fork_server.start(kept.arguments, environment)

    def _restart_dead(self, environment: dict[str, str]) -> None:
        for kept in self._kept:
            assert kept.process is not None
            if kept.alive:
                continue
            if kept.process.returncode == SETTINGS_CANNOT_WORK:  # it has said why, in one sentence
                raise SystemExit(SETTINGS_CANNOT_WORK)
            if not kept.restart_at:
                log.get().warning(f"{kept.name} ended, starting it again", exit_code=kept.process.returncode)
                _forget_process(self._settings, kept.process.pid)
                kept.restart_at = time.monotonic() + RESTART_SECONDS
            if time.monotonic() >= kept.restart_at:
                kept.restart_at = 0.0
                self._start(kept, environment)

    def _wait(self, urls: Sequence[str], settings: Settings, environment: dict[str, str]) -> None:
        """Wait until receiver and dashboard answer and every worker that was started has reported."""
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping and not _answers(urls, settings, self._workers()):
            self._restart_dead(environment)
            if time.monotonic() > deadline:
                text = (
                    f"not ready within {READY_SECONDS:.0f} s: the receiver, the dashboard or a worker does not answer"
                )
                raise Unavailable(text)
            time.sleep(0.05)

    def _workers(self) -> list[int]:
        """The process ids of our workers; Redis may still remember those of an `up` that was killed."""
        return [kept.process.pid for kept in self._kept if kept.process is not None and kept.name.startswith("work ")]

    def _announce(self, url: str, settings: Settings) -> None:
        """Print the one line that says that everything answers."""
        servers = ",".join(settings.redis_urls())
        here = running.Running(
            os.getpid(), url, servers, settings.database, settings.partitions, settings.durability, settings.agent
        )
        if settings.dashboard.enabled:
            here = replace(here, dashboard=self._dashboard_url)
        running.announce(settings.data_dir, here)
        print(f"ready {url} · metrics {url}/metrics · agent {settings.agent} · workers {settings.workers}", flush=True)
        if settings.dashboard.enabled:
            link = login_link(settings, self._dashboard_url, Role.ADMIN)
            print(f"dashboard {link} · works once, `keyturn login` makes another", flush=True)

    def _drain(self, settings: Settings) -> None:
        """Stop taking in, and let the workers finish what they have, unless a second signal says to stop now."""
        if (here := running.find(settings.data_dir)) is not None:
            running.announce(settings.data_dir, replace(here, stopping=True))
        alive = [kept for kept in self._kept if kept.alive]
        if alive:
            seconds = f"{settings.grace_seconds:.0f} s"
            log.get().info(f"stopping: running turns may end within {seconds}; Ctrl-C again stops now")
        for kept in alive:
            assert kept.process is not None
            kept.process.send_signal(signal.SIGTERM)
        started = told = time.monotonic()
        while alive and self._signals < 2 and time.monotonic() < started + settings.grace_seconds + 5:
            if time.monotonic() > told + 1:
                log.get().info(f"waiting for {', '.join(kept.name for kept in alive)}")
                told = time.monotonic() + settings.grace_seconds  # once is enough
            time.sleep(0.05)
            alive = [kept for kept in alive if kept.alive]
        if alive:
            log.get().warning(f"killing {', '.join(kept.name for kept in alive)}; unfinished turns run again")
        for kept in alive:
            assert kept.process is not None
            kept.process.send_signal(signal.SIGKILL)
            kept.process.wait()


def _answers(urls: Sequence[str], settings: Settings, workers: Sequence[int]) -> bool:
    receiver, *dashboard = urls
    try:
        if not _is_ready(receiver, "/readyz") or not all(_is_ready(url, "/healthz") for url in dashboard):
            return False
        reported: set[bytes] = set()
        for redis_url in settings.redis_urls():
            clients = RedisClients(redis_url, settings.redis_tls.connecting())
            with clients.blocking_client(socket_timeout=2) as client:
                found: Any = client.smembers(WORKERS)
                reported |= found
    except (OSError, http.client.HTTPException, redis.RedisError):
        return False
    names = [worker_key(keys.worker_name_prefix(pid)).encode() for pid in workers]
    return all(any(worker.startswith(name) for worker in reported) for name in names)


def _is_ready(url: str, path: str) -> bool:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _dashboard_port(settings: Settings, port: int) -> int:
    """The port of the settings, or a free one where it is taken or `up` was asked for free ones."""
    wanted = settings.dashboard.port if port else 0
    try:
        bind(DASHBOARD_HOST, wanted).close()
    except ConfigurationError:
        wanted = 0
    return wanted or child.free_port()


def _environment(settings: Settings) -> dict[str, str]:
    """What the children are told: this process's environment, with the servers filled in."""
    assert settings.redis_url is not None
    return {
        **os.environ,
        f"{PREFIX}REDIS_URL": settings.redis_url.get_secret_value(),
        f"{PREFIX}DATABASE_URL": settings.database,
        f"{PREFIX}AGENT": settings.agent,
        f"{PREFIX}METRICS__PORT": "0",  # the receiver gives the numbers of all children
        f"{PREFIX}LOG_DIR": str(settings.log_directory.resolve()),
        METRICS_DIRECTORY: str(_samples(settings)),
    }


def _samples(settings: Settings) -> Path:
    return settings.data_dir.resolve() / "metrics"


def _empty_samples(settings: Settings) -> str:
    """The directory of the numbers that the children share, without those of the `up` before."""
    samples = _samples(settings)
    samples.mkdir(exist_ok=True)
    for old in samples.glob("*.db"):
        old.unlink()
    return str(samples)


def _forget_process(settings: Settings, pid: int) -> None:
    """Let the metrics no longer say that a process lives. What it has counted stays."""
    from prometheus_client.multiprocess import mark_process_dead  # only here: few children die

    mark_process_dead(pid, str(_samples(settings)))  # type: ignore[no-untyped-call]

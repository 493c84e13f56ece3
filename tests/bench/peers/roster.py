"""Who takes part, and how each is brought onto this machine. What cannot be had is Absent, with the reason."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.bench.board import Absent, Sample
from tests.bench.drain import Contest, drain
from tests.bench.ground import ROOT, Ground, environment
from tests.bench.load import arrivals

HERE = Path(__file__).parent
INSTALL_SECONDS = 300.0
FILL_SECONDS = 600.0
GROUPMQ = ("groupmq@1.1.0", "ioredis@6.0.0")


@dataclass(frozen=True)
class PythonPeer:
    """A module of this package, in our environment (the `bench` group) or in one of its own (`pins`)."""

    name: str
    module: str
    needs: str  # the import that tells whether it is there
    pins: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def measure(self, ground: Ground, keys: int, per_key: int, limit_seconds: float) -> Sample:
        python = _environment_of(ground, self.pins) if self.pins else _our_python(self.needs)
        command = [str(python), "-m", f"tests.bench.peers.{self.module}"]
        env = environment(**self.env)
        url = ground.fresh_redis()
        _run([*command, "fill", url, str(keys), str(per_key)], env)
        contest = Contest([*command, "work", url], env, keys * per_key, limit_seconds=limit_seconds)
        return drain(ground, contest, ground.fresh_directory(self.module)).sample()


@dataclass(frozen=True)
class GroupMQ:
    """A Node program, where Node is present."""

    name: str = "GroupMQ"
    turn_seconds: float = 0.0

    def measure(self, ground: Ground, keys: int, per_key: int, limit_seconds: float) -> Sample:
        home = _node_modules(ground)
        program = str(home / "groupmq.mjs")
        env = environment(BENCH_TURN_SECONDS=str(self.turn_seconds))
        url = ground.fresh_redis()
        lines = "".join(f"{key} {n}\n" for key, n in arrivals(keys, per_key))
        _run(["node", program, "fill", url], env, text=lines)
        contest = Contest(["node", program, "work", url], env, keys * per_key, limit_seconds=limit_seconds)
        return drain(ground, contest, ground.fresh_directory("groupmq")).sample()


RQ_STOCK = PythonPeer("RQ + lock, stock worker", "rq_recipe", "rq", env={"RQ_WORKER": "Worker"})
RQ_SIMPLE = PythonPeer("RQ + lock, SimpleWorker", "rq_recipe", "rq", env={"RQ_WORKER": "SimpleWorker"})
ARQ_LOCKED = PythonPeer("arq + lock", "arq_queue", "arq", pins="arq.txt", env={"ARQ_RECIPE": "1", "ARQ_DEFAULTS": "1"})
ARQ_TUNED = PythonPeer("arq + lock, tuned", "arq_queue", "arq", pins="arq.txt", env={"ARQ_RECIPE": "1"})
ORDERED: tuple[PythonPeer | GroupMQ, ...] = (RQ_STOCK, RQ_SIMPLE, ARQ_LOCKED, ARQ_TUNED, GroupMQ())
UNORDERED = (
    PythonPeer("taskiq stream", "taskiq_queue", "taskiq_redis", env={"TASKIQ_BROKER": "RedisStreamBroker"}),
    PythonPeer("taskiq list", "taskiq_queue", "taskiq_redis", env={"TASKIQ_BROKER": "ListQueueBroker"}),
    PythonPeer("saq", "saq_queue", "saq", pins="saq.txt"),
    PythonPeer("arq", "arq_queue", "arq", pins="arq.txt"),
    PythonPeer("celery", "celery_queue", "celery", pins="celery.txt"),
    PythonPeer("dramatiq", "dramatiq_queue", "dramatiq"),
)


def _our_python(needs: str) -> Path:
    if importlib.util.find_spec(needs) is None:
        raise Absent(f"{needs} is not installed: it is in the bench group")
    return Path(sys.executable)


@cache
def _environment_of(ground: Ground, pins: str) -> Path:
    """A virtual environment made for this run, with what the file names."""
    home = ground.fresh_directory("environment")
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools/bin"))
    python = home / "bin/python"
    if uv is not None:
        _install([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home)], home)
        _install([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(HERE / pins)], home)
    else:
        _install([sys.executable, "-m", "venv", str(home)], home)
        _install([str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / pins)], home)
    return python


@cache
def _node_modules(ground: Ground) -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Absent("needs node and npm")
    home = ground.fresh_directory("node")
    (home / "package.json").write_text('{"private": true, "type": "module"}')
    shutil.copy(HERE / "groupmq.mjs", home)
    _install(["npm", "install", "--silent", "--no-audit", "--no-fund", *GROUPMQ], home)
    return home


def pinned() -> dict[str, str]:
    """The versions of those that live in environments of their own."""
    pins = [line.partition(" ")[0].split("==") for file in HERE.glob("*.txt") for line in file.read_text().splitlines()]
    versions = {pin[0]: pin[1] for pin in pins if len(pin) == 2}
    return {name: versions[name] for name in ("arq", "saq", "celery")} | dict(pin.split("@") for pin in GROUPMQ[:1])


def _install(command: Sequence[str], cwd: Path) -> None:
    """Not from our own directory: uv would hold the peer to our versions."""
    try:
        subprocess.run(
            command, cwd=cwd, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=os.environ
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Absent(f"could not be installed: {said[-1][:160] if said else type(error).__name__}") from None


def _run(command: Sequence[str], env: Mapping[str, str], text: str | None = None) -> None:
    try:
        subprocess.run(
            command, env=dict(env), input=text, check=True, capture_output=True, text=True, timeout=FILL_SECONDS
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise RuntimeError(f"could not be filled: {said[-1][:200] if said else error}") from None

"""Starts `python -m keyturn.cli …` by forking a process that has imported everything: a tenth of a second of CPU, not one.

A test starts its commands as ever, by `subprocess` or `child.start`; so does `keyturn up` when it was itself started here. A
command of Keyturn's goes to the fork server as its arguments, directory, environment and open files. The server forks twice: the
parent of the new process ends at once, and the kernel gives it to whoever asked (PR_SET_CHILD_SUBREAPER), who can wait for it and
kill it like any child. It differs from one that was started cold in its command line and in what was imported before.

Started cold as ever: what runs in a terminal, what has failpoints (they are looked up at import), and whatever has the variable
COLD, or another PYTHONPATH, in its environment.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from shared import failpoints
from shared.embedded import child

ROOT = Path(__file__).parents[2]
COLD = "COLD_START"
MODULE = "keyturn.cli"
STARTERS = (["up"], ["chat"])  # commands that start others
SHARES_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # looked up at import, too: those who have it get a server of their own
WARM = (
    "httpx",
    "psycopg",
    "psycopg_pool",
    "redis.asyncio",
    "rq.worker",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "keyturn.cli.app",
    "keyturn.cli.chat",
    "keyturn.cli.deployment",
    "keyturn.cli.up",
    "keyturn.dashboard.process",
    "producers.listening",
    "producers.server.process",
    "shared.store.database.postgres",
    "shared.store.database.sqlite",
    "workers.delivery.followed",
    "workers.delivery.webhook",
    "workers.process.run",
    "workers.upkeep.housekeeper",
)
_PR_SET_CHILD_SUBREAPER = 36
_places: list[str] = []
_asking = threading.Lock()
_cold_execute: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_cold_start = child.start


def install() -> None:
    """From here on, this process and those that it so starts get Keyturn's commands warm."""
    if sys.platform == "linux" and COLD not in os.environ:
        subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]
        child.start = _start


# -- whoever starts a command


def _start(
    command: Sequence[str], *, dies_by: signal.Signals = signal.SIGTERM, **options: Any
) -> subprocess.Popen[bytes]:
    if not _is_warm(command, options.get("env")):
        return _cold_start(command, dies_by=dies_by, **options)
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_DiesBy(dies_by), **options)


class _DiesBy:
    """Stands in for `child.die_with`, which the new process calls by itself."""

    def __init__(self, by: signal.Signals) -> None:
        self.by = int(by)

    def __call__(self) -> None:
        raise AssertionError("the command was to be started warm")


def _is_warm(command: object, environment: Mapping[str, str] | None) -> bool:
    variables = os.environ if environment is None else environment
    if not isinstance(command, list | tuple) or COLD in variables or failpoints.VARIABLE in variables:
        return False
    words = [str(word) for word in command if word != "-P"]
    return words[:3] == [sys.executable, "-m", MODULE] and variables.get("PYTHONPATH", str(ROOT)) == str(ROOT)


def _execute(self: subprocess.Popen[Any], *given: Any) -> None:
    """In place of Popen._execute_child, which forks and executes."""
    named = inspect.signature(_cold_execute).bind(self, *given).arguments
    dies = named["preexec_fn"]
    usual = (dies is None or isinstance(dies, _DiesBy)) and not named["pass_fds"]
    if not usual or not _is_warm(named["args"], named["env"]):
        _cold_execute(self, *given)
        return
    command = list(named["args"])
    environment = dict(os.environ if named["env"] is None else named["env"])
    standard = [
        ours if ours != -1 else number
        for number, ours in enumerate((named["p2cread"], named["c2pwrite"], named["errwrite"]))
    ]
    request = {
        "arguments": command[command.index(MODULE) + 1 :],
        "directory": os.fspath(named["cwd"]) if named["cwd"] is not None else os.getcwd(),
        "environment": environment,
        "session": named["start_new_session"],
        "group": os.getpgid(0),
        "dies_by": dies.by if dies is not None else 0,
        "safe": "-P" in command[:2],
        "by": os.getpid(),
    }
    shares_metrics = SHARES_METRICS in environment or command[command.index(MODULE) + 1 :][:1] in STARTERS
    if shares_metrics:
        environment.setdefault(SHARES_METRICS, os.path.dirname(_places_of_servers()[1]))
    self.pid = _ask(shares_metrics, request, standard)
    self._child_created = True  # type: ignore[attr-defined]
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    self._close_pipe_fds(*(named[name] for name in names))  # type: ignore[attr-defined]


def _ask(shares_metrics: bool, request: dict[str, Any], files: list[int]) -> int:
    """The new process, as a child of ours."""
    with _asking, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(_places_of_servers()[shares_metrics])
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            body = orjson.dumps(request)
            socket.send_fds(line, [len(body).to_bytes(4, "big")], files)
            line.sendall(body)
            answer = line.recv(16)
        finally:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)
    assert answer, f"the fork server did not start {request['arguments']}"
    return int(answer)


def _places_of_servers() -> tuple[str, str]:
    """Where the servers listen: of processes without metrics of their own, and with. Both start when one is first needed."""
    if not _places:
        started = [_start_server(shares_metrics) for shares_metrics in (False, True)]
        for server, path in started:
            assert server.stdout is not None
            assert server.stdout.readline() == b"warm\n", "the fork server did not start"
            _places.append(path)
    return _places[0], _places[1]


def _start_server(shares_metrics: bool) -> tuple[subprocess.Popen[bytes], str]:
    directory = tempfile.mkdtemp(prefix="warm-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYTURN_")}
    environment |= {"PYTHONPATH": str(ROOT)}
    environment.pop(SHARES_METRICS, None)
    if shares_metrics:
        environment[SHARES_METRICS] = directory
    path = f"{directory}/line"
    command = [sys.executable, "-P", "-m", __spec__.name, path]
    server = _cold_start(command, dies_by=signal.SIGKILL, env=environment, cwd=directory, stdout=subprocess.PIPE)
    atexit.register(child.stop, server, signal.SIGKILL, 5)
    return server, path


# -- the fork server


def serve(path: str) -> list[str]:
    """Import everything, and fork whatever is asked for. Returns only in a new process, with the arguments of its command."""
    for module in WARM:
        importlib.import_module(module)
    from shared.settings import Settings

    Settings(_env_file=None)  # type: ignore[call-arg]  # builds what checks them
    gc.collect()
    gc.freeze()
    with _listening_at(path) as listening:
        print("warm", flush=True)
        return _fork_for_all(listening)


def _listening_at(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    return listening


def _fork_for_all(listening: socket.socket) -> list[str]:
    while True:
        line, _ = listening.accept()
        between = os.fork()
        if between == 0:
            return _become(listening, line)
        line.close()
        os.waitpid(between, 0)


def _become(listening: socket.socket, line: socket.socket) -> list[str]:
    """Fork once more; the process that is left becomes a child of whoever asked."""
    size, files, _, _ = socket.recv_fds(line, 4, 64)
    body = b""
    while len(body) < int.from_bytes(size, "big"):
        body += line.recv(1 << 20)
    request = orjson.loads(body)
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0002)
    path = f"{os.path.dirname(listening.getsockname())}/{os.getpid()}"
    listening.close()
    _set_standard(files)
    if request["session"]:
        os.setsid()
    else:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(0, request["group"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    if request["dies_by"]:
        child.die_with(request["by"], signal.Signals(request["dies_by"]))
    given = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    rest = [place for place in sys.path if place != str(ROOT)]
    sys.path[:] = [*([] if request["safe"] else [os.getcwd()]), *given, *rest]
    arguments: list[str] = request["arguments"]
    if arguments[:1] in STARTERS:
        with _listening_at(path) as own:
            if os.fork() == 0:
                line.close()
                return _serve_one(own)
        atexit.register(os.unlink, path)
        subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]
        child.start = _start
        _places[:] = [path, path]
    else:
        subprocess.Popen._execute_child = _cold_execute  # type: ignore[attr-defined]
        child.start = _cold_start
    line.sendall(str(os.getpid()).encode())
    line.close()
    return arguments


def _serve_one(listening: socket.socket) -> list[str]:
    """A server for one command: only a descendant's processes can be given to it."""
    os.setsid()
    child.die_with(os.getppid(), signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return _fork_for_all(listening)


def _set_standard(arrived: Sequence[int]) -> None:
    """Input, output and errors of the new process. Other files stay open: they are the server's metrics, which somebody closes."""
    for number, file in enumerate(arrived):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, closefd=False, errors="backslashreplace")  # type: ignore[misc]  # noqa: SIM115


if __name__ == "__main__":
    sys.argv = [MODULE, *serve(sys.argv[1])]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)

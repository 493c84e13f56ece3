"""The process that the children of `keyturn up` are forked from. It has imported what they need, so that one starts with a
tenth of the CPU. It has no thread, no event loop and no connection; the forked process makes its own.

`up` asks by a line of JSON, {"arguments", "environment"}, is answered with a process id, and says by another line that it knows the
process. The new process is a child of `up` itself: it is forked twice, the process between ends at once, and the kernel gives its
child to `up`, which adopts orphans meanwhile. It begins when `up` knows it, and ends if this server is killed before: so `up` knows
all its children. In lists of processes it has the command line of a process that was started alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from keyturn.cli.app import command
from shared import settings
from shared.embedded.child import die_with
from shared.errors import PipelineError
from shared.own_modules import command_of
from shared.platforms import PLATFORMS

MODULES = (
    "producers.server.process",
    "rq.worker",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "workers.delivery.followed",
    "workers.process.run",
    "workers.upkeep.housekeeper",
)
DASHBOARD, LISTENERS = "keyturn.dashboard.process", "producers.listening"
SQLITE, POSTGRES = "shared.store.database.sqlite", "shared.store.database.postgres"


def main(descriptor: int, up: int) -> None:
    """Fork until `up` closes the line."""
    line = socket.socket(fileno=descriptor)
    import_all()
    gc.collect()
    gc.freeze()  # a collection would write to every page that the forked processes share
    if (arguments := _fork_for_each(line, up)) is not None:
        from keyturn.cli import main as keyturn

        keyturn(arguments)


def import_all() -> None:
    """Import what the processes of these settings need, and put together what they have in common."""
    modules = [*MODULES, *(f"workers.delivery.{name}" for name in PLATFORMS)]
    modules += [f"producers.{name}.receive" for name, facts in PLATFORMS.items() if facts.receives]
    with contextlib.suppress(PipelineError):  # a file has changed, and whoever is forked says what is wrong with it
        config = settings.load()
        modules += [DASHBOARD] if config.dashboard.enabled else []
        modules += [LISTENERS] if config.listening else []
        modules.append(SQLITE if config.database.startswith("sqlite:") else POSTGRES)
    for module in modules:
        importlib.import_module(module)
    command()


def _fork_for_each(line: socket.socket, up: int) -> list[str] | None:
    """Returns the arguments of its command in a new process, and None in this one, when `up` is done with it."""
    with line, line.makefile("rb") as requests:
        for request in requests:
            asked = orjson.loads(request)
            known, tell = os.pipe()  # from here to the new process: `up` knows it
            if (pid := _fork()) == 0:
                os.close(tell)
                break
            os.close(known)
            line.sendall(b"%d\n" % pid)
            if requests.readline():
                os.write(tell, b"\n")
            os.close(tell)
        else:
            return None
    os.setsid()
    die_with(up, signal.SIGTERM)
    _wait_until_known(known)
    os.environ.clear()
    os.environ.update(asked["environment"])
    arguments: list[str] = asked["arguments"]
    command = command_of("keyturn.cli", *arguments)
    sys.argv[:] = ["keyturn", *arguments]
    _show(command)
    return arguments


def _fork() -> int:
    """The id of a new process whose parent has ended; 0 in that process."""
    told, tell = os.pipe()
    if os.fork() == 0:
        between = os.getpid()
        if pid := os.fork():
            os.write(tell, b"%d" % pid)
            os._exit(0)
        os.close(told)
        os.close(tell)
        while os.getppid() == between:
            time.sleep(0.0005)
        return 0
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        pid = int(answer.read())
    os.wait()
    return pid


def _wait_until_known(known: int) -> None:
    """Return when `up` knows this process. It ends if the server was killed before that."""
    if not os.read(known, 1):
        os._exit(0)
    os.close(known)


def _show(command: Sequence[str]) -> None:
    """Let lists of processes have this command line: it is written over our own, which `up` made long enough."""
    start, end = (int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    if start and len(words) <= end - start:
        ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

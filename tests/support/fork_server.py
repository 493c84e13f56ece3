"""A warm process that forks Keyturn processes on command, so that starting one costs milliseconds instead of half a second.

It has imported everything and has neither event loop nor threads; what it forks runs the same command line as
`python -m keyturn.cli ROLE …`. Requests and answers are JSON lines on one socket:
{"role", "args", "log", "clock", "environment", "tag"} -> {"tag", "pid"}; {"ended": pid, "status", "cpu_seconds"} when a child ends, and
{"stopped": pid} when it stands still. `clock` is a file with a number of seconds by which the child's wall clock is wrong; it may
change at any time.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from typing import Any

import orjson

from keyturn.cli.fork_server import import_all

_PR_SET_PDEATHSIG = 1
CLOCK = struct.Struct("d")


def main(channel: socket.socket) -> None:
    """Fork until the other end of the socket is closed."""
    import_all()
    importlib.import_module("tests.support.scripted")
    gc.collect()
    gc.freeze()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _say(channel, {"ready": True})
    received = b""
    while True:
        readable, _, _ = select.select([channel, woken], [], [])
        if woken in readable:
            woken.recv(4096)
            _report_ended(channel)
        if channel in readable:
            data = channel.recv(65536)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                request = orjson.loads(line)
                pid = os.fork()
                if pid == 0:
                    for inherited in (channel, woken, wake):
                        inherited.close()
                    _become(request)
                _say(channel, {"tag": request["tag"], "pid": pid})


def _say(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))


def _report_ended(channel: socket.socket) -> None:
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            _say(channel, {"stopped": pid})
            continue
        cpu = used.ru_utime + used.ru_stime
        _say(channel, {"ended": pid, "status": os.waitstatus_to_exitcode(status), "cpu_seconds": cpu})


def _become(request: dict[str, Any]) -> None:
    """The child: run one command and end with its exit code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request["environment"])
        _set_wall_clock(request["clock"])
        sys.argv = ["keyturn", request["role"], *request["args"]]
        from keyturn.cli import main as keyturn

        keyturn()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set_wall_clock(path: str) -> None:
    """From here on, Python code of this process reads the time of day with the error that the file holds."""
    with open(path, "r+b") as file:
        error = mmap.mmap(file.fileno(), CLOCK.size)
    right_ns, right = time.time_ns, time.time
    time.time_ns = lambda: right_ns() + int(CLOCK.unpack_from(error)[0] * 1e9)
    time.time = lambda: right() + CLOCK.unpack_from(error)[0]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

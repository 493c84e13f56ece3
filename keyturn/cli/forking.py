"""How `keyturn up` starts its children: forked from a process that has imported everything, or alone where that cannot be."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import orjson

from shared import log
from shared.embedded import child
from shared.own_modules import command_of

ANSWER_SECONDS = 60.0  # only a slow machine, or a fork server that somebody stopped, takes near as long
ROOM = "." * 400  # for the command lines of the forked processes, which are written over the fork server's


class ChildProcess(Protocol):
    """What `up` does with a child, as `subprocess.Popen` names it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...
    def wait(self) -> int: ...


class Forked:
    """A child of this process that another one forked for it. Only this process may wait for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        code = self._waited(0)
        assert code is not None
        return code

    def send_signal(self, sig: int) -> None:
        """Nothing once it has ended: its id may be another's by then."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """Starts `keyturn` commands as children of this process, which get SIGTERM when it ends. Use it from the main thread.

    `environment` is what the server itself is started with. Whenever it does not answer, a command is started alone instead,
    and the next one by a new server. Elsewhere than on Linux there is none, and all are.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        if sys.platform == "linux":
            self._open()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> ChildProcess:
        """Start `keyturn` with these arguments, in a session of its own and with nowhere to print."""
        if sys.platform == "linux":
            if self._server is None or self._server.poll() is not None:
                self._open()
            if (pid := self._ask(arguments, environment)) is not None:
                return Forked(pid)
        command = command_of("keyturn.cli", *arguments)
        return child.start(command, env=dict(environment), stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """End the server, and whatever it has forked and not told us of; its other forks go on."""
        if self._line is not None:
            self._line.close()
        if self._server is not None:
            child.stop(self._server, signal.SIGKILL, 5)  # it has nothing to finish
            self._server = None

    def _open(self) -> None:
        self.close()
        self._line, theirs = socket.socketpair()
        self._line.settimeout(ANSWER_SECONDS)
        with theirs:
            words = (str(theirs.fileno()), str(os.getpid()), ROOM)
            self._server = child.start(
                command_of("keyturn.cli.fork_server", *words),
                dies_by=signal.SIGKILL,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def _ask(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
        """The id of the new process; None: the server did not answer, and has been ended."""
        assert self._line is not None
        request = orjson.dumps({"arguments": list(arguments), "environment": dict(environment)})
        with suppress(OSError), child.adopting_orphans():
            self._line.sendall(request + b"\n")
            if answer := self._line.recv(64):
                self._line.sendall(b"known\n")
                return int(answer)
        log.get().warning("the fork server did not answer; starting the process alone", process=arguments[0])
        self.close()
        return None

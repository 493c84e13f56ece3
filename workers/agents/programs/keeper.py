"""The processes between a worker and its programs. They have no thread and no event loop.

| process | does |
|---|---|
| launcher, one for each agent that runs programs | forks a keeper for each program; ends when the worker does |
| keeper, one for each program | starts the program, and ends it with everything that it started |

The worker hands the keeper a connection and the program's three streams. On the connection the worker sends the launch
(workers/agents/programs/launch.py). The keeper answers with one line when the program has ended and nothing is left of it:
`{"exit": 0}`, with the negative number of a signal where that ended it, or `{"refused": "…"}` where it could not start.

A worker that hangs up, or dies, ends the program: SIGTERM to all of it, SIGKILL after GRACE_SECONDS. What the program left
running when it ended by itself is ended in the same way.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

from shared.embedded.child import die_with
from workers.agents.programs.descendants import adopt_orphans, descendants
from workers.agents.programs.launch import LINE_BYTES, Launch, read_launch

STREAMS = 3  # stdin, stdout and stderr of the program
GRACE_SECONDS = 0.5
KILL_SECONDS = 10.0  # then the rest hangs in the kernel, where no signal reaches it


def main(descriptor: int) -> None:
    """Be the launcher: fork for each connection that the worker hands over, until the worker is gone."""
    line = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers: their connection says how they ended
    while True:
        _, handed, _, _ = socket.recv_fds(line, 64, 1 + STREAMS)
        if not handed:
            return
        if os.fork() == 0:
            line.close()
            try:
                Keeper(socket.socket(fileno=handed[0])).keep(handed[1:])
            finally:
                os._exit(0)
        for one in handed:
            os.close(one)


class Keeper:
    """One program from its start until nothing is left of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._program = 0
        self._exit_code: int | None = None
        self._wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def keep(self, streams: list[int]) -> None:
        adopt_orphans()
        launch = self._received()
        try:
            said: dict[str, int | str] = self._run(launch, streams)
        finally:
            if launch.is_own_directory:
                shutil.rmtree(launch.directory, ignore_errors=True)
        with suppress(OSError):  # the worker has gone
            self._connection.sendall(json.dumps(said).encode() + b"\n")

    def _received(self) -> Launch:
        received = bytearray()
        while not received.endswith(b"\n"):
            piece = self._connection.recv(2**16)
            if not piece or len(received) > LINE_BYTES:
                os._exit(1)
            received += piece
        return read_launch(bytes(received))

    def _run(self, launch: Launch, streams: list[int]) -> dict[str, int | str]:
        keeper = os.getpid()

        def prepare() -> None:
            die_with(keeper, signal.SIGKILL)
            for name, most in launch.limits.items():
                kind = getattr(resource, name)
                _, hard = resource.getrlimit(kind)
                soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (soft, soft))

        stdin, stdout, stderr = streams
        try:
            process = subprocess.Popen(
                launch.arguments,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=launch.directory,
                env=dict(launch.environment),
                start_new_session=True,
                preexec_fn=prepare,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        finally:
            for one in streams:
                os.close(one)
        self._program = process.pid
        self._wait()
        self._end_all()
        process.returncode = self._exit_code or 0  # we waited for it ourselves
        return {"exit": self._exit_code if self._exit_code is not None else -signal.SIGKILL}

    def _wait(self) -> None:
        """Until the program has ended, or the worker has hung up."""
        ready = select.poll()
        ready.register(self._connection, select.POLLIN)
        ready.register(self._wakes, select.POLLIN)
        while self._exit_code is None:
            for which, _ in ready.poll():
                if which == self._connection.fileno():
                    return
                os.read(self._wakes, 512)
            self._reap()

    def _reap(self) -> None:
        """Take note of every child that has ended: the program, and orphans that became ours."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._program:
                    self._exit_code = os.waitstatus_to_exitcode(ended[1])

    def _end_all(self) -> None:
        """Ask everything that is left to end, and kill what has not. New ones are found as long as any appear."""
        begun = time.monotonic()
        pause, by = 0.002, signal.SIGTERM
        left = self._left()
        self._signal(left, by)
        while left and time.monotonic() - begun < KILL_SECONDS:
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
            if time.monotonic() - begun > GRACE_SECONDS:
                by = signal.SIGKILL
            left = self._left()
            if by is signal.SIGKILL:
                self._signal(left, by)

    def _left(self) -> list[int]:
        self._reap()
        found = descendants(os.getpid())
        if self._exit_code is None and self._program not in found:  # a system without /proc
            found.append(self._program)
        return found

    def _signal(self, left: list[int], by: signal.Signals) -> None:
        if self._exit_code is None:  # its process group is its own as long as it is there
            with suppress(OSError):
                os.killpg(self._program, by)
        for one in left:
            with suppress(OSError):
                os.kill(one, by)


if __name__ == "__main__":
    main(int(sys.argv[1]))

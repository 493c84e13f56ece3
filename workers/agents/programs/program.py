"""Runs programs from the event loop. What they start ends with them, also if the worker dies: see keeper.py beside this."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import BinaryIO, TypeVar

from shared.embedded import child
from shared.errors import Transient
from shared.own_modules import command_of
from workers.agents.programs.keeper import KILL_SECONDS, STREAMS
from workers.agents.programs.launch import Launch

BUFFER_BYTES = 2**16  # of a stream, read ahead of its reader
END_SECONDS = 2.0  # for a program and what it started to end, before the turn goes on without waiting


class NotStarted(Transient):
    """The program could not be started; the text says why."""


class Program:
    """A program that runs. Its streams are read and written as it goes on."""

    def __init__(
        self, connection: asyncio.StreamReader, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self._connection = connection
        self.stdout = stdout
        self.stderr = stderr

    async def exit_code(self) -> int:
        """Wait until it has ended, with everything that it started. Below zero: by the signal of that number.

        NotStarted where it never ran, Transient where nobody knows how it ended.
        """
        line = await self._connection.readline()
        if not line:
            raise Transient("the process that kept the program died")
        said = json.loads(line)
        if "refused" in said:
            raise NotStarted(f"the program could not be started: {said['refused']}")
        return int(said["exit"])


class Launcher:
    """Starts programs. Its own process is started with the first of them, and ends with this one."""

    def __init__(self) -> None:
        self._owner = 0  # the process that started it: an agent may have been loaded before a fork
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    @asynccontextmanager
    async def running(self, launch: Launch) -> AsyncIterator[tuple[Program, asyncio.StreamWriter]]:
        """The program and its stdin, for as long as the block lasts. After the block nothing that it started is left, or
        it is being killed."""
        with ExitStack() as on_failure:
            ends = self._handed_over()
            on_failure.callback(ends.close)
            reader, writer = await asyncio.open_unix_connection(sock=ends.taken(ends.connection))
            on_failure.callback(writer.transport.abort)
            writer.write(launch.line())
            stdout = await _readable(ends.taken(ends.stdout), on_failure)
            program = Program(reader, stdout, await _readable(ends.taken(ends.stderr), on_failure))
            sink = await _writable(ends.taken(ends.stdin), on_failure)
            opened = on_failure.pop_all()
        try:
            yield program, sink
        finally:
            writer.write_eof()  # hang up
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    while await reader.read(2**16):
                        pass
            opened.close()

    def close(self) -> None:
        """End the process that programs are started from. Programs that run end when their blocks do."""
        if self._line is not None:
            self._line.close()
        if self._process is not None and self._owner == os.getpid():
            child.stop(self._process, signal.SIGTERM, KILL_SECONDS)

    def _handed_over(self) -> _Ends:
        """Have a keeper forked, and hand it its ends of the connection and of the program's streams."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._start()
        assert self._line is not None
        with ExitStack() as handed:
            ours, theirs = socket.socketpair()
            handed.callback(theirs.close)
            (in_reads, in_writes), (out_reads, out_writes), (err_reads, err_writes) = (
                os.pipe() for _ in range(STREAMS)
            )
            for one in (in_reads, out_writes, err_writes):
                handed.callback(os.close, one)
            ends = _Ends(ours, in_writes, out_reads, err_reads)
            try:
                socket.send_fds(self._line, [b"a program"], [theirs.fileno(), in_reads, out_writes, err_writes])
            except OSError as error:
                ends.close()
                raise Transient(f"programs cannot be started: {type(error).__name__}") from None
        return ends

    def _start(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        command = command_of("workers.agents.programs.keeper", str(theirs.fileno()))
        with theirs:
            self._process = child.start(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._owner = os.getpid()


Closes = TypeVar("Closes", socket.socket, BinaryIO)


class _Ends:
    """Our ends of a program's streams, each until a transport takes it: whoever has one closes it, and nobody else. A
    descriptor that is closed twice may be somebody else's by then."""

    def __init__(self, connection: socket.socket, stdin: int, stdout: int, stderr: int) -> None:
        self.connection = connection
        self.stdin: BinaryIO = os.fdopen(stdin, "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(stdout, "rb", buffering=0)
        self.stderr: BinaryIO = os.fdopen(stderr, "rb", buffering=0)
        self._ours: list[socket.socket | BinaryIO] = [connection, self.stdin, self.stdout, self.stderr]

    def taken(self, end: Closes) -> Closes:
        self._ours.remove(end)
        return end

    def close(self) -> None:
        for end in self._ours:
            end.close()


async def _readable(pipe: BinaryIO, on_failure: ExitStack) -> asyncio.StreamReader:
    stream = asyncio.StreamReader(limit=BUFFER_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    on_failure.callback(transport.close)
    return stream


async def _writable(pipe: BinaryIO, on_failure: ExitStack) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )

    def close() -> None:
        if not transport.is_closing():
            transport.abort()

    on_failure.callback(close)
    transport.set_write_buffer_limits(0)  # `drain` waits until all of it is written
    return asyncio.StreamWriter(transport, protocol, None, loop)

"""Runs turns isolated: each in a process of its own, so that one that brings its process down hurts no other.

The fork server (workers/agents/fork_server.py) has the agent loaded and forks for each connection that it is handed. A
connection is a turn: the turn goes in, and its events come out as they happen (workers/agents/frames.py). Its steps are
written down here, in the worker (workers/agents/remote_steps.py), its requests to providers are counted here
(workers/agents/remote_admission.py), and Keyturn's own tools are carried out here (workers/agents/remote_tools.py). A connection that
ends too early means that the process died.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from shared.agent.events import Event
from shared.agent.turn import Turn
from shared.agent.wire import encode_turn
from shared.embedded import child
from shared.errors import Crashed, Outage, Transient
from shared.own_modules import command_of
from shared.session_key import MAIN
from workers.agents.contract import Agent, NeedsNoTask, StartsFirst
from workers.agents.frames import decode_failure, event_in, framed, read_frame
from workers.agents.model.admission import ProviderAdmission
from workers.agents.remote_admission import AdmittedProcess
from workers.agents.remote_steps import answered
from workers.agents.remote_tools import OfferedTools
from workers.agents.tools.tool import Tool

AT_ONCE = 32
START_SECONDS = 30.0  # then the message waits, as for a provider that is away: no attempt is spent


class Isolated(StartsFirst, NeedsNoTask):
    """Makes agents like the one it is named after. Nothing is started until one is first needed."""

    def __init__(self, agent: str, name: str = MAIN) -> None:
        self._agent = agent
        self._name = name  # whose settings it has
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._fork_server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None  # to the fork server, which ends when this one does
        self._admission: ProviderAdmission | None = None
        self._tools = OfferedTools()

    def take_tools(self, tools: Sequence[Tool]) -> None:
        """Let isolated turns call these tools of Keyturn's own."""
        self._tools = OfferedTools(tools)

    def take_admission(self, admission: ProviderAdmission) -> None:
        """Let requests of isolated turns be counted with all others."""
        self._admission = admission

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Agent]:
        """An agent for one turn, whose process is there. The process ends with the block, whatever it does then."""
        async with self._slots:
            reader, writer = await self._connect()
            requests = AdmittedProcess(self._admission)
            try:
                yield IsolatedAgent(reader, writer, requests, self._tools)
            finally:
                requests.close()
                writer.transport.abort()  # at once: the rest of a turn that nobody reads would keep the connection

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._fork_server is not None:
            child.stop(self._fork_server, signal.SIGTERM, 2)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._starting:
            if self._fork_server is None or self._fork_server.poll() is not None:
                await self._start()
        assert self._line is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._line, [b"a turn"], [theirs.fileno()])
            return await asyncio.open_unix_connection(sock=ours)
        except OSError as error:
            ours.close()
            raise Transient(f"the fork server does not answer: {type(error).__name__}") from None

    async def _start(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        command = command_of("workers.agents.fork_server", str(theirs.fileno()), self._agent, self._name)
        with theirs:
            self._fork_server = child.start(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        is_ready = b""
        try:
            async with asyncio.timeout(START_SECONDS):
                is_ready = await asyncio.get_running_loop().sock_recv(self._line, 1)
        except TimeoutError:  # the machine is slow: the message did nothing wrong
            raise Outage(f"it was not ready after {START_SECONDS:g} s", provider="the fork server") from None
        finally:
            if not is_ready:  # nobody may take it for one that runs
                child.stop(self._fork_server, signal.SIGKILL, 2)
        if not is_ready:
            raise Transient("the fork server did not start")


class IsolatedAgent:
    """The agent in one process, for one turn."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        requests: AdmittedProcess | None = None,
        tools: OfferedTools | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._requests = requests or AdmittedProcess(None)
        self._tools = tools or OfferedTools()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        """The events as they happen in the process. The process waits while nobody asks for the next one.

        Raises what the agent raised there, and Crashed where the process died.
        """
        with suppress(ConnectionError):  # it may have died before it read all of the turn: reading says so
            self._writer.write(framed(encode_turn(turn)))
            await self._writer.drain()
        while (record := await read_frame(self._reader)) is not None:
            match record:
                case {"end": _}:
                    return
                case {"failed": dict(about)}:
                    raise decode_failure(about)
                case {"step": dict(asked)}:
                    self._writer.write(framed(await answered(asked, turn.steps)))
                    continue
                case {"admission": dict(asked)}:
                    if (answer := await self._requests.answered(asked)) is not None:
                        self._writer.write(framed(answer))
                    continue
                case {"tool": dict(asked)}:
                    self._writer.write(framed(await self._tools.answered(asked, turn)))
                    continue
            yield event_in(record)
        raise Crashed("the process that ran this turn died")

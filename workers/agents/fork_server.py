"""The process that isolated turns are forked from: it loads the agent once and forks for each turn. Has no thread and no
event loop; the forked process has both."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.agent.events import Event
from shared.agent.files import BlobFiles, Files, NoFiles
from shared.agent.steps import LoggedSteps
from shared.agent.turn import Turn
from shared.agent.wire import decode_turn, encode_event
from shared.blobs.place import open_blobs
from shared.embedded.child import die_with
from shared.errors import AgentFault, Malformed
from shared.own_modules import allow_working_directory
from shared.session_key import MAIN
from workers.agents.capabilities import takes_admission, takes_tools
from workers.agents.contract import Agent
from workers.agents.frames import END, HEADER_BYTES, LIMIT_BYTES, encode_failure, framed, too_long
from workers.agents.heard import not_an_event
from workers.agents.programs.descendants import adopt_orphans, kill_descendants
from workers.agents.reading import CANCELLED_ITSELF
from workers.agents.remote_line import WorkerLine
from workers.agents.remote_steps import RemoteLog
from workers.agents.resolve import resolve

if TYPE_CHECKING:
    from shared.settings import Settings

LATE_SECONDS = 5  # past the turn's own deadline, a process that does not listen any more is killed


def main(descriptor: int, agent_name: str, name: str) -> None:
    """Take connections from the worker, fork, and leave the rest to the child; until the worker is gone."""
    allow_working_directory()
    line = socket.socket(fileno=descriptor)
    agent = resolve(agent_name, None if name == MAIN else _settings_of(name))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: their connection says how they ended
    line.send(b"!")  # ready
    me = os.getpid()
    while True:
        _, handed, _, _ = socket.recv_fds(line, 64, 1)
        if not handed:
            return
        connection = socket.socket(fileno=handed[0])
        if os.fork() == 0:
            line.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the agent waits for the programs that it runs
            die_with(me, signal.SIGKILL)
            _take_turn(agent, connection)
            os._exit(0)
        connection.close()


def _settings_of(name: str) -> Settings:
    from shared import settings  # only here: most agents need none, and it takes longer to load than all the rest

    return settings.load().for_agent(name)


def _files_in_bucket() -> Files:
    """The files of a deployment that keeps them in no directory. Its key is no part of the turn, so the settings are read here."""
    from shared import settings

    deployment = settings.load()
    return BlobFiles(open_blobs(deployment)) if deployment.blobs.url is not None else NoFiles()


def _take_turn(agent: Agent, connection: socket.socket) -> None:
    """Read the turn and run it. This process ends when the worker hangs up, or a little after the deadline."""
    record = _received(connection, int.from_bytes(_received(connection, HEADER_BYTES), "big"))
    _end_with_the_worker(connection)
    try:
        turn = decode_turn(record)
    except Malformed as error:
        connection.sendall(framed(encode_failure(error)))
        return
    if turn.files.directory is None:
        turn = replace(turn, files=_files_in_bucket())
    if turn.deadline != math.inf:
        signal.alarm(max(0, math.ceil(turn.deadline - time.monotonic())) + LATE_SECONDS)
    asyncio.run(_run_turn(agent, turn, connection))


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes from the worker. The process ends if it hangs up before."""
    received = bytearray()
    while len(received) < size:
        if not (piece := connection.recv(min(size - len(received), 2**20))):
            os._exit(1)
        received += piece
    return bytes(received)


def _end_with_the_worker(connection: socket.socket) -> None:
    """End this process, and all that it started, when the worker hangs up. A thread watches, because an agent may block
    the event loop."""
    adopt_orphans()
    watched, hung_up = connection.dup(), select.poll()
    hung_up.register(
        watched, 0
    )  # a closed connection is always told; the worker's answers to steps are not for this thread

    def watch() -> None:
        with watched:  # it stays open as long as somebody waits for it
            hung_up.poll()
            kill_descendants(os.getpid())
            os._exit(1)

    threading.Thread(target=watch, name="hung up", daemon=True).start()


async def _run_turn(agent: Agent, turn: Turn, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    line = WorkerLine(reader, writer)
    turn = replace(turn, steps=LoggedSteps(RemoteLog(line)))
    if (admitted := takes_admission(agent)) is not None:
        from workers.agents.remote_admission import RemoteAdmission  # only here: it loads the settings

        admitted.take_admission(RemoteAdmission(line))
    with contextlib.suppress(ConnectionError):
        try:
            if (takes := takes_tools(agent)) is not None:
                from workers.agents.remote_tools import remote_tools  # only here: most agents have no tools

                takes.take_tools(await remote_tools(line))
            async for event in agent.run(turn):
                writer.write(framed(_encoded(event)))
                await writer.drain()
            last = END
        except Exception as error:
            last = encode_failure(error)
        except asyncio.CancelledError:
            last = encode_failure(AgentFault(CANCELLED_ITSELF))
        writer.write(framed(last))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    os._exit(0)


def _encoded(event: object) -> bytes:
    """The event as a record. AgentFault for what the worker could not read."""
    try:
        record = encode_event(event)  # type: ignore[arg-type]
    except Malformed as error:
        if not isinstance(event, Event):
            raise not_an_event(event) from None
        raise AgentFault(f"the agent yielded {type(event).__name__}, which has no form in JSON: {error}") from None
    if len(record) > LIMIT_BYTES:
        raise too_long(len(record))
    return record


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

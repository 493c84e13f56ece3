"""The process that runs turns apart: it loads the agent once and forks for each turn. Has no thread and no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import orjson

from shared.agent.wire import decode_turn, encode_result
from shared.embedded.child import die_with
from shared.errors import Outage, Permanent
from shared.own_modules import allow_working_directory
from shared.session_key import MAIN
from workers.agents.contract import Agent, resolve

if TYPE_CHECKING:
    from shared.settings import Settings

LATE_SECONDS = 5  # past the turn's own deadline, a process that does not listen any more is killed


def main(descriptor: int, agent_name: str, timeout_seconds: float, name: str) -> None:
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
            die_with(me, signal.SIGKILL)
            signal.alarm(int(timeout_seconds) + LATE_SECONDS)
            asyncio.run(_run_turn(agent, connection))
            os._exit(0)
        connection.close()


def _settings_of(name: str) -> Settings:
    from shared import settings  # only here: most agents need none, and it takes longer to load than all the rest

    return settings.load().for_agent(name)


def _outage(error: Outage) -> dict[str, Any]:
    waits = error.retry_after.total_seconds()
    return {"retry_after_s": waits, "provider": error.provider, "status": error.status}


async def _run_turn(agent: Agent, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    size = int.from_bytes(await reader.readexactly(8), "big")
    turn = decode_turn(await reader.readexactly(size))
    hung_up = asyncio.create_task(reader.read(1))
    hung_up.add_done_callback(lambda _: os._exit(1))  # the worker has given the turn up
    try:
        answer = encode_result(await agent.run(turn))
    except Exception as error:
        told = {
            "error": f"{type(error).__name__}: {error}"[:500],
            "permanent": isinstance(error, Permanent),
            "notice": getattr(error, "notice", None),
            "outage": _outage(error) if isinstance(error, Outage) else None,
        }
        answer = orjson.dumps(told)
    writer.write(answer)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()
    await writer.wait_closed()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4])

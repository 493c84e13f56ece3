"""A connection to an MCP server that is a program: a line of JSON per message, on its stdin and stdout.

The SDK's own way of starting programs leaves them behind when a worker is killed, so ours are kept like every other program:
see workers/agents/programs/keeper.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from workers.agents.programs.launch import Launch
from workers.agents.programs.program import Launcher, Program
from workers.agents.spoken import CHUNK_BYTES, lines

LINE_BYTES = 16 * 2**20  # of one message
LOG_CHARACTERS = 2_000
LAST_WORDS_SECONDS = 0.5  # a program that ended its output has so long to end its stderr, which may say why

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio(
    launcher: Launcher, launch: Launch, hear: Callable[[str], None], ended: Callable[[], None]
) -> AsyncIterator[Streams]:
    """Start the program and talk to it, as a transport of the SDK. It ends with the block, with all that it started. One
    that ends by itself calls `ended`, and before that `hear` with its last lines on stderr."""
    incoming, received = anyio.create_memory_object_stream[Incoming](0)
    sending, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    async with launcher.running(launch) as (program, stdin):
        hearing = asyncio.create_task(_hear(program.stderr, hear))
        tasks = [
            asyncio.create_task(_read(program, incoming, hearing, ended)),
            asyncio.create_task(_write(stdin, outgoing)),
            hearing,
        ]
        try:
            yield received, sending
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (incoming, received, sending, outgoing):
                stream.close()


async def _read(
    program: Program,
    incoming: MemoryObjectSendStream[Incoming],
    hearing: asyncio.Task[None],
    ended: Callable[[], None],
) -> None:
    """Hand over what the program says. The end of it, or a message that is too long, ends the connection."""
    async with incoming:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError):
            async for line in lines(_chunks(program.stdout)):
                await incoming.send(_message(line))
        await asyncio.wait((hearing,), timeout=LAST_WORDS_SECONDS)
    ended()


async def _chunks(stdout: asyncio.StreamReader) -> AsyncIterator[bytes]:
    size = 0  # since the last end of a line
    while chunk := await stdout.read(CHUNK_BYTES):
        size = len(chunk) - chunk.rfind(b"\n") - 1 if b"\n" in chunk else size + len(chunk)
        if size > LINE_BYTES:
            raise ValueError("a message without end")
        yield chunk


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(stdin: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(ConnectionError, anyio.ClosedResourceError):
        async for message in outgoing:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _hear(stderr: asyncio.StreamReader, hear: Callable[[str], None]) -> None:
    """Hand over what the server says to stderr, line by line."""
    rest = b""
    while chunk := await stderr.read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[:LOG_CHARACTERS]
        for line in whole:
            hear(line[:LOG_CHARACTERS].decode(errors="replace"))
    if rest:
        hear(rest.decode(errors="replace"))

"""What an isolated process may send, and what becomes of anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import orjson
import pytest

from keyturn import AgentFault, Delta, Done, Event, Outage, Permanent, RateLimited, Reply, Transient, Turn
from shared.agent.wire import encode_event
from shared.errors import Crashed
from workers.agents.frames import END, LIMIT_BYTES, decode_failure, encode_failure, framed
from workers.agents.isolated import IsolatedAgent

TURN = Turn("turn_1", "agent:main:webhook:dm:c1", "ses_1", (), ())


@asynccontextmanager
async def process(*sent: bytes) -> AsyncIterator[IsolatedAgent]:
    """The agent in a process that sends this, and hangs up."""
    ours, theirs = asyncio.StreamReader(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.writelines(sent)
        writer.close()
        theirs.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ours, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield IsolatedAgent(ours, writer)
    finally:
        writer.close()
        server.close()
        await theirs.wait()


async def events(*sent: bytes) -> list[Event]:
    async with process(*sent) as agent:
        return [event async for event in agent.run(TURN)]


def record(value: object) -> bytes:
    return framed(orjson.dumps(value))


async def test_events_come_out_in_order_until_the_agent_has_ended() -> None:
    said: list[Event] = [Delta("a"), Done((Reply("a"),))]
    assert await events(*(framed(encode_event(event)) for event in said), framed(END)) == said


@pytest.mark.parametrize("sent", [b"", framed(encode_event(Delta("a"))), b"\0\0", b"\0\0\0\x09{"])
async def test_a_process_that_hangs_up_too_early_has_crashed(sent: bytes) -> None:
    with pytest.raises(Crashed):
        await events(sent)


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (record({"shout": "a"}), "unknown frame"),
        (record({"v": 2, "delta": "a"}), "wire version 2 is not known"),
        (record([]), "unknown frame"),
        (record({"failed": "why"}), "unknown frame"),
        (record({"delta": 5}), "unknown frame"),
        (framed(b"{"), "no JSON"),
        ((LIMIT_BYTES + 1).to_bytes(4, "big"), "an event of 16777217 bytes"),
        (b"\xff\xff\xff\xff", "an event of 4294967295 bytes"),
    ],
)
async def test_a_frame_that_no_process_of_ours_sends_is_an_error_and_no_hang(sent: bytes, fault: str) -> None:
    with pytest.raises(AgentFault, match=fault):
        await asyncio.wait_for(events(sent, framed(END)), 60)


@pytest.mark.parametrize(
    "error",
    [
        Permanent("no", "not for me"),
        Permanent("no"),
        Outage("away", retry_after=timedelta(seconds=3), provider="p", status=503),
        RateLimited(timedelta(seconds=7), provider="p", status=429),
        AgentFault("the agent ended without Done"),
        TimeoutError("late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_decides_the_same_on_both_sides(error: Exception) -> None:
    back = decode_failure(orjson.loads(encode_failure(error))["failed"])
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_any_other_error_is_tried_again_and_names_its_class() -> None:
    back = decode_failure(orjson.loads(encode_failure(ValueError("x" * 1000)))["failed"])
    assert isinstance(back, Transient) and str(back).startswith("ValueError: xxx") and len(str(back)) < 600


def test_a_process_of_an_older_version_names_the_class_in_its_text_only() -> None:
    assert type(decode_failure({"kind": "error", "text": "ValueError: x"})) is Transient

"""Small agents that tests name by AGENT=tests.support.agents:…"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

from shared.agent.events import Call, Delta, Done, Event
from shared.agent.turn import Turn
from shared.errors import Permanent
from shared.messages import Entry, Reply


def obey(text: str) -> str:
    """Do what the text says, in whatever process this is."""
    word, _, rest = text.partition(" ")
    if word == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "raise":
        raise RuntimeError(rest)
    if word == "refuse":
        raise Permanent(rest)
    if word == "hang":
        with open(rest, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)
    if word == "run":
        return str(subprocess.run(["sh", "-c", rest]).returncode)
    return str(os.getpid())


async def block(path: str) -> str:
    """Write down which process this is, and block its event loop for ever."""
    return obey(f"hang {path}")


async def begin_to_speak(turn: Turn) -> AsyncIterator[Event]:
    """Say the first half of an answer, and never the second."""
    yield Delta("first ")
    yield Delta("half")
    await asyncio.Event().wait()


async def speak_twice(turn: Turn) -> AsyncIterator[Event]:
    """Say the first half of an answer and stay silent; on the second attempt, say all of it."""
    yield Delta("first half, ")
    if turn.attempt == 1:
        await asyncio.Event().wait()
    yield Delta("second half")
    yield Done((Reply("first half, second half"),))


async def say_much(turn: Turn) -> AsyncIterator[Event]:
    """Yield an event that is larger than a frame may be."""
    yield Delta("x" * (17 * 2**20))


async def say_nonsense(turn: Turn) -> AsyncIterator[Event]:
    """Yield what is no event."""
    yield 5  # type: ignore[misc]


async def charge_twice(turn: Turn) -> AsyncIterator[Event]:
    """Charge twice, by steps, and kill the process inside the second call, once. The text names a file: each line is an
    effect."""
    path = Path(turn.mail[0].text)

    async def charge(key: str) -> str:
        if _act(path, key) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return "charged"

    made = [{"id": id, "name": "charge", "arguments": "{}"} for id in ("c1", "c2")]
    if not turn.rows:
        await turn.steps.response(Entry("assistant", "", data={"tool_calls": made}))
    stepped = [await turn.steps.call(Call(id, "charge"), charge) for id in ("c1", "c2")]
    yield Done((Reply(" ".join(one.how for one in stepped)),))


def _act(path: Path, key: str) -> int:
    """Act once more. Gives how often that is."""
    with path.open("a") as file:
        file.write(f"{key}\n")
    return path.read_text().count("\n")

"""A deployment of real processes for one promise at a time: what was said to it, and what became of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.faults.evidence import query
from tests.faults.load import Message
from tests.faults.staged import deployed, post
from tests.support.cluster import Cluster
from tests.support.openai import KEY, MODEL, Provider
from tests.support.platform import Platform

PATIENCE = 600.0  # only a machine that is busy with other things comes near it
LOOK_SECONDS = 0.01
MANY = 60
Ended = tuple[str, str | None]  # a message's state, and the reason


@dataclass(slots=True)
class Deployment:
    """A receiver, a housekeeper, and what the caller adds."""

    cluster: Cluster
    platform: Platform
    database_url: str
    _said: dict[str, int] = field(default_factory=dict)

    def messages(self, chat: str, *texts: str) -> list[Message]:
        """The next messages of a chat."""
        before = self._said.get(chat, 0)
        self._said[chat] = before + len(texts)
        return [Message(chat, before + n, text, 0.0) for n, text in enumerate(texts, 1)]

    async def say(self, chat: str, *texts: str) -> list[Message]:
        """Send these, one after another. Every one is accepted when this returns."""
        return await post(self.cluster, self.messages(chat, *texts))

    def ends(self, messages: Sequence[Message]) -> list[Ended]:
        """How these have ended so far, by the journal."""
        rows = {row["id"]: row for row in query(self.database_url, "SELECT id, state, reason FROM inbox")}
        return [(rows[message.id]["state"], rows[message.id]["reason"]) for message in messages]

    async def ended(self, messages: Sequence[Message]) -> list[Ended]:
        """How these ended, once all of them have."""
        pending = "SELECT id FROM inbox WHERE state = 'pending'"
        wanted = {message.id for message in messages}
        await until(
            lambda: wanted.isdisjoint(row["id"] for row in query(self.database_url, pending)),
            f"{len(wanted)} messages have ended",
            0.01 if len(wanted) < MANY else 0.5,  # the provider's stand-in shares this event loop
        )
        return self.ends(messages)

    def shown(self, chat: str) -> list[str]:
        """What a chat was told, in order."""
        return [callback.text for callback in self.platform.shown().get(chat, [])]

    async def command(self, *arguments: str) -> Any:
        """What a `keyturn` command on this deployment says, as JSON."""
        line = [sys.executable, "-m", "keyturn.cli", *arguments, "--json"]

        def run() -> subprocess.CompletedProcess[bytes]:
            place, environment = self.cluster.directory, self.cluster.environment
            return subprocess.run(line, cwd=place, env=environment, capture_output=True, check=False, timeout=PATIENCE)

        done = await asyncio.to_thread(run)
        assert done.returncode == 0, done.stderr.decode()
        return orjson.loads(done.stdout)


@asynccontextmanager
async def open_deployment(directory: Path, database_url: str, **settings: float | str) -> AsyncIterator[Deployment]:
    """`settings` are named as in Settings. Workers are for the caller to add."""
    async with deployed(directory, database_url, **settings) as (cluster, platform):
        yield Deployment(cluster, platform, database_url)


def asks(provider: Provider, **changes: str) -> dict[str, str]:
    """Settings of the `llm` agent with a provider of ours."""
    return {
        "agent": "llm",
        "llm__model": MODEL,
        "llm__base_url": provider.url,
        "llm__api_key": KEY,
        **{f"llm__{name}": value for name, value in changes.items()},
    }


async def until(holds: Callable[[], object], what: str, every: float = LOOK_SECONDS) -> None:
    """Wait for something to become true; the failure says what did not."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:.0f} s: {what}") from None


async def seconds_until(holds: Callable[[], object], what: str, since: float) -> float:
    """How long after `since`, on the monotonic clock, it became true."""
    await until(holds, what)
    return time.monotonic() - since


def is_running(pid: int) -> bool:
    """Whether a process runs. One that was killed counts until its last thread is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X") or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def pids_in(path: Path) -> list[int]:
    """The process ids that somebody wrote down; none while the file is not there."""
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

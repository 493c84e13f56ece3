"""A deployment in which nothing is broken yet, for one fault at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.load import Message, Senders
from tests.support.cluster import SECRET, Cluster, open_cluster
from tests.support.platform import Platform, open_platform
from tests.support.scripted import read_log
from tests.support.valkeys import Valkeys

PATIENCE = 60.0  # for things that take a moment; only a slow machine comes near it


@asynccontextmanager
async def deployed(
    directory: Path, database_url: str, beside: int = 0, /, **settings: float | str
) -> AsyncIterator[tuple[Cluster, Platform]]:
    """A receiver and a housekeeper, one Redis server and so many beside it; workers are for the test to start."""
    usual = {"result_seconds": 1}  # so that what RQ keeps for a while is gone when the run is looked at
    valkeys = Valkeys(directory / "valkey", beside=beside)
    async with (
        open_platform(SECRET) as platform,
        open_cluster(directory, database_url, platform.url, valkeys, **usual, **settings) as cluster,
    ):
        await cluster.add("receive")
        await cluster.add("housekeep")
        yield cluster, platform


async def send(cluster: Cluster, script: str, keys: int, names: str = "k") -> list[Message]:
    """One message to each of so many keys, accepted."""
    chats = [f"{names}{number}" for number in range(keys)]
    return await post(cluster, [Message(chat, 1, f"n=1 {script}", 0.0) for chat in chats])


async def post(cluster: Cluster, messages: list[Message]) -> list[Message]:
    """These messages, accepted, each chat's in order."""
    plan: dict[str, list[Message]] = {}
    for message in messages:
        plan.setdefault(message.chat, []).append(message)
    return (await Senders(cluster.ports(), seed=0).post(plan)).accepted


def begun(cluster: Cluster) -> int:
    return sum(note.event == "begin" for note in read_log(cluster.turn_log))

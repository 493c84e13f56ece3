"""How soon things go on after one fault, when nothing else is broken: with the times that a deployment has by default.

Where many things break at once, as in the long run, a key may lose one worker after the other, and the database as well.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from shared.redis_servers import Servers
from tests.faults.databases import Ground, open_ground
from tests.faults.evidence import Evidence, gather
from tests.faults.load import Message, Senders
from tests.faults.plan import Faults
from tests.faults.recovery import after_child_crashes, after_kills, commits
from tests.faults.staged import PATIENCE, begun, deployed, send
from tests.faults.trial import Trial, quiescence, run_trial
from tests.support.cluster import Cluster, until

LEASE_SECONDS, HEARTBEAT_SECONDS, BACKOFF_SECONDS = 10.0, 3.0, 1.0  # the defaults
ROUNDS = 10
KEYS = 20  # whose turns a worker is running when it dies; or that each of several Redis servers has
PARTITIONS = 32  # so that each of three servers has some
EVERY_SECONDS, AWAY_SECONDS = 0.5, 5.0  # between two messages of a conversation; a Redis server is gone


@dataclass(frozen=True, slots=True)
class Alone:
    """Sorted, in seconds."""

    kills: list[float]  # from a worker's death to the commit of each message that it was running
    child_crashes: list[float]  # from the death of a turn's own process to the next attempt
    redis_returns: list[float]  # from Redis' return to 90 % of the throughput before
    # One of three Redis servers is away: from the sending of a message to its commit, for keys of the two others.
    others_keys: list[float]
    # The same server is back: from its return to the commit of each message that waited for it.
    own_keys: list[float]


async def measure(directory: Path, database: str, seed: int, rounds: int = ROUNDS) -> Alone:
    """Each fault `rounds` times, and each time the turns of KEYS keys at once."""
    directory.mkdir()
    async with open_ground(database, directory, proxied=False) as ground:
        kills, _ = after_kills(*await _die(directory / "kills", ground, rounds, "linger=4000", by_signal=True))
        # The first attempt takes its worker along. All that ran there runs isolated from then on, and crashes there.
        _, evidence = await _die(directory / "crashes", ground, rounds, "linger=1500 crash=2", by_signal=False)
        faults = Faults(restarts=rounds)
        trial = Trial(seed, messages=rounds * 1000, keys=500, seconds=rounds * 10.0, faults=faults, quiet_seconds=5.0)
        outcome = await run_trial(trial, directory / "redis", ground)
        others, own = await _lose_servers(directory / "servers", ground, rounds)
        return Alone(kills, after_child_crashes(evidence), outcome.speed_recoveries, others, own)


async def _die(
    directory: Path, ground: Ground, rounds: int, script: str, *, by_signal: bool
) -> tuple[Cluster, Evidence]:
    """Workers die while they run these turns, again and again: all at rest between two times."""
    directory.mkdir()
    times = {"lease_seconds": LEASE_SECONDS, "heartbeat_seconds": HEARTBEAT_SECONDS, "backoff_seconds": BACKOFF_SECONDS}
    async with deployed(directory, ground.url, **times) as (cluster, platform):
        workers, sent = await cluster.add("work", 2), list[Message]()
        for number in range(rounds):
            before = begun(cluster)
            sent += await send(cluster, script, KEYS, names=f"{directory.name}{number}-")
            await until(lambda before=before: begun(cluster) >= before + KEYS, PATIENCE, "every turn has begun")  # type: ignore[misc]
            if by_signal:
                cluster.kill(workers[number % 2])
            await quiescence(cluster, ground.straight_url)
        return cluster, gather(sent, ground.straight_url, platform, cluster, leases_forgotten=False)


async def _lose_servers(directory: Path, ground: Ground, rounds: int) -> tuple[list[float], list[float]]:
    """One of three Redis servers is killed and comes back, again and again, while conversations of all three go on."""
    directory.mkdir()
    others, own = list[float](), list[float]()
    async with deployed(directory, ground.url, 2, partitions=PARTITIONS) as (cluster, platform):
        await cluster.add("work", 2)
        urls, all_sent = cluster.valkeys.urls, list[Message]()
        messages = round(3 * AWAY_SECONDS / EVERY_SECONDS)  # for as long before the server goes, and after its return
        for number in range(rounds):
            lost = 1 + number % 2  # the first stays
            chats = _chats_by_server(urls, f"s{number}-")
            plan = {
                chat: [Message(chat, n, f"n={n}", n * EVERY_SECONDS) for n in range(1, messages + 1)]
                for chat in (chat for of_server in chats for chat in of_server)
            }
            began, senders = time.monotonic(), Senders(cluster.ports(), seed=number)
            sending = asyncio.create_task(senders.post(plan))
            await asyncio.sleep(AWAY_SECONDS)
            went, back = await cluster.valkeys.one_away(lost - 1, AWAY_SECONDS)
            all_sent += (await sending).accepted
            await quiescence(cluster, ground.straight_url)
            evidence = gather(all_sent, ground.straight_url, platform, cluster, leases_forgotten=False)
            at = commits(evidence)
            done = {row["id"]: at[row["turn_id"]] for row in evidence.inbox if row["turn_id"] in at}
            for server, of_server in enumerate(chats):
                for message in (message for chat in of_server for message in plan[chat]):
                    due, ended = began + message.due, done[message.id]
                    if server != lost and went <= due < back:
                        others.append(ended - due)
                    elif server == lost and due < back < ended:
                        own.append(ended - back)
    return sorted(others), sorted(own)


def _chats_by_server(urls: list[str], names: str) -> list[list[str]]:
    """KEYS conversations of each server."""
    servers = Servers(urls, PARTITIONS)
    found: list[list[str]] = [[] for _ in urls]
    number = 0
    while any(len(chats) < KEYS for chats in found):
        chat = f"{names}{number}"
        chats = found[servers.all.index(servers.of_key(Message(chat, 1, "", 0.0).session_key))]
        if len(chats) < KEYS:
            chats.append(chat)
        number += 1
    return found

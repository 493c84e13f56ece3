"""How soon things go on after one fault, when nothing else is broken: with the times that a deployment has by default.

Where many things break at once, as in the long run, a key may lose one worker after the other, and the database as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.faults.databases import Ground, open_ground
from tests.faults.evidence import Evidence, gather
from tests.faults.load import Message
from tests.faults.plan import Faults
from tests.faults.recovery import after_child_crashes, after_kills
from tests.faults.staged import PATIENCE, begun, deployed, send
from tests.faults.trial import Trial, quiescence, run_trial
from tests.support.cluster import Cluster, until

LEASE_SECONDS, HEARTBEAT_SECONDS, BACKOFF_SECONDS = 10.0, 3.0, 1.0  # the defaults
ROUNDS = 10
KEYS = 20  # whose turns a worker is running when it dies


@dataclass(frozen=True, slots=True)
class Alone:
    """Sorted, in seconds."""

    kills: list[float]  # from a worker's death to the commit of each message that it was running
    child_crashes: list[float]  # from the death of a turn's own process to the next attempt
    redis_returns: list[float]  # from Redis' return to 90 % of the throughput before


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
        return Alone(kills, after_child_crashes(evidence), outcome.speed_recoveries)


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

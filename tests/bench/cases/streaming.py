"""Streaming: answers of a model that are streamed for two seconds, all at once in one worker process.

The provider is a process of its own. Titles are off: each would be a second request. `lag` is how late the worker's event
loop is when it looks every 10 ms.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from functools import partial

from shared.messages import State
from tests.bench.board import Sample, Variant
from tests.bench.drain import Contest, drain
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.provider import KEY, MODEL, open_provider
from tests.bench.record import Watch
from tests.bench.sizes import Sizes

DELTAS = 50
LIMIT_SECONDS = 120.0
WORK = (sys.executable, "-m", "tests.bench.lagging", "work", "--only", "turns")


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [
        Variant(f"{count:,} turns", partial(_measure, ground, count, sizes.stream_seconds)) for count in sizes.streams
    ]


def _measure(ground: Ground, count: int, seconds: float) -> Sample:
    ground.fresh_redis()
    directory = ground.fresh_directory("streaming")
    with open_provider(directory, DELTAS, seconds) as (url, provider):
        deployment = Deployment(ground, ground.fresh_database("sqlite"), changes=settings_for(url))
        deployment.fill(arrivals(count, 1))
        started_cpu = provider.cpu_seconds()
        watched: list[Watch] = []
        contest = Contest(
            command=(*WORK, "--concurrency", str(count)),
            env=deployment.environment(),
            messages=0,  # the agent is the product's own and keeps no record: that no key is awake says that all is done
            limit_seconds=LIMIT_SECONDS,
            idle=deployment.idle,
            meanwhile=watched.append,
        )
        drained = drain(ground, contest, directory)
        provider_cpu = provider.cpu_seconds() - started_cpu
    _check(deployment.database_url, count)
    ground.drop_database(deployment.database_url)
    lags = watched[0].lags_ms()
    return {
        "seconds": drained.seconds,
        "peak_mb": drained.peak_mb,
        "lag_p99_ms": lags[int(len(lags) * 0.99)],
        "lag_max_ms": lags[-1],
        "turn_cpu_ms": 1000 * drained.cpu_seconds / count,
        "provider_cpu_ms": 1000 * provider_cpu / count,
    }


def settings_for(url: str) -> tuple[tuple[str, str], ...]:
    """The `llm` agent on that provider."""
    return (
        ("AGENT", "llm"),
        ("LLM__MODEL", MODEL),
        ("LLM__BASE_URL", url),
        ("LLM__API_KEY", KEY),
        ("TITLES", "false"),
    )


def _check(database_url: str, count: int) -> None:
    """RuntimeError unless every message has the whole answer of the model."""
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as database:
        [answered] = database.execute("SELECT count(*) FROM inbox WHERE state = ?", (State.ANSWERED,)).fetchone()
        said = database.execute("SELECT DISTINCT text FROM messages WHERE role = 'assistant'").fetchall()
    if answered != count or said != [(" ".join(["word"] * DELTAS),)]:
        raise RuntimeError(f"{answered} of {count} answered, with {len(said)} different texts")

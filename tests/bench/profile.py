"""`./run profile`: where a worker's CPU time goes, stage by stage, while it drains an ordered load.

With --rate it runs turns and deliveries at that pace instead, from webhook to callback.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from shared.embedded import child
from tests.bench.cases import latency
from tests.bench.drain import LOOK_SECONDS, Progress, wait_until_ready
from tests.bench.ground import Ground, open_ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.processes import Measured
from tests.bench.record import VARIABLE, Watch

SAMPLED = (sys.executable, "-m", "tests.bench.sampled")
STOP_SECONDS = 60
FUNCTIONS_SHOWN = 4


def arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run profile", description=__doc__)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--per-key", type=int, default=10)
    parser.add_argument("--rate", type=int, default=None, help="messages per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long at that rate")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--durability", choices=("journal", "redis"), default="journal")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    given = arguments(args)
    with open_ground() as ground:
        url, directory = ground.fresh_database(given.database), ground.fresh_directory("profile")
        if given.rate is not None:
            messages = int(given.rate * given.seconds) + latency.WARM_UP
            found = _watched_pace(ground, url, given.rate, given.seconds, directory)
        else:
            messages = given.keys * given.per_key
            deployment = Deployment(ground, url, given.durability)
            deployment.fill(arrivals(given.keys, given.per_key))
            found = _watched_drain(deployment, messages, directory)
    _show(found, messages, f"{messages:,} messages, {given.database}")
    return 0


def _watched_pace(ground: Ground, url: str, rate: int, seconds: float, directory: Path) -> list[tuple[str, str, int]]:
    output = directory / "samples.json"
    uvloop.run(latency.through(ground, url, rate, seconds, (*SAMPLED, str(output))))
    return _read(output)


def _watched_drain(deployment: Deployment, messages: int, directory: Path) -> list[tuple[str, str, int]]:
    """CPU nanoseconds by stage and function."""
    output, record = directory / "samples.json", directory / "record"
    watch = Watch(record)
    command = [*SAMPLED, str(output), "work", "--only", "turns"]
    worker = Measured(command, deployment.environment(**{VARIABLE: str(record)}), directory / "worker.log", directory)
    try:
        wait_until_ready(watch, [worker])
        watch.go()
        progress = Progress(watch)
        while not (watch.jobs() >= messages and deployment.idle()):
            worker.check()
            progress.check(worker)
            time.sleep(LOOK_SECONDS)
    finally:
        child.stop(worker.process, signal.SIGTERM, STOP_SECONDS)
    return _read(output)


def _read(output: Path) -> list[tuple[str, str, int]]:
    return [(stage, function, ns) for stage, function, ns in orjson.loads(output.read_bytes())]


def _show(found: Sequence[tuple[str, str, int]], messages: int, title: str) -> None:
    stages: Counter[str] = Counter()
    functions: dict[str, Counter[str]] = {}
    for stage, function, ns in found:
        stages[stage] += ns
        functions.setdefault(stage, Counter())[function] += ns
    total = max(sum(stages.values()), 1)
    table = Table(title=title, title_justify="left")
    for name, justify in (("stage", "left"), ("µs/msg", "right"), ("share", "right"), ("most of it in", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for stage, ns in stages.most_common():
        most = ", ".join(
            f"{name} {100 * part / ns:.0f}%" for name, part in functions[stage].most_common(FUNCTIONS_SHOWN) if name
        )
        table.add_row(stage, f"{ns / 1000 / messages:.1f}", f"{100 * ns / total:.1f}%", most)
    table.add_row("all", f"{total / 1000 / messages:.1f}", "100%", "")
    console = Console()
    Console(width=max(console.width, 120)).print(table)


if __name__ == "__main__":
    sys.exit(main())

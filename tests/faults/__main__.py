"""`./run faults`: one run with a seed, to see for yourself. Ends with 1 when a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.store.database import open_database
from tests.faults.report import as_page, write
from tests.faults.trial import Trial, run_trial
from tests.support.platform import no_trouble, random_trouble
from tests.support.servers import Databases, running_postgres


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's plan; a new one if not given")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=None, help="how long load and faults last")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--flushes", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2, help="of Redis")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--housekeepers", type=int, default=2)
    parser.add_argument("--lease", type=float, default=2.0, help="lease time in seconds")
    parser.add_argument("--platform", choices=("idempotent", "plain"), default="idempotent")
    parser.add_argument("--trouble", type=float, default=0.02, help="share of callbacks that meet trouble")
    parser.add_argument("--poison", type=float, default=0.0, help="share of messages whose turn always fails")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--report", type=Path, default=None, help="where to write the page (.md) and the JSON (.json)")
    return parser.parse_args()


@contextmanager
def fresh_database(kind: str, directory: Path) -> Iterator[str]:
    """An empty database with the schema in place."""
    if kind == "sqlite":
        yield Databases("").fresh_sqlite(directory)
        return
    with running_postgres() as server:
        asyncio.run(_migrate(server.url))
        yield server.url


async def _migrate(url: str) -> None:
    database = await open_database(url)
    await database.migrate()
    await database.close()


def main() -> int:
    given = arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    trial = Trial(
        seed=seed,
        messages=given.messages,
        keys=given.keys,
        seconds=given.seconds if given.seconds is not None else max(5.0, given.messages / 250, given.kills * 0.4),
        zipf=0.8,
        receivers=given.receivers,
        workers=given.workers,
        housekeepers=given.housekeepers,
        kills=given.kills,
        pauses=given.pauses,
        flushes=given.flushes,
        restarts=given.restarts,
        poison=("raise", "refuse", "hang", "crash"),
        poison_share=given.poison,
        idempotent=given.platform == "idempotent",
        trouble=random_trouble(seed, given.trouble) if given.trouble else no_trouble,
        lease_seconds=given.lease,
        settings={"turn_timeout_seconds": 2.0} if given.poison else {},
    )
    print(f"seed {seed}, {given.database}, about {trial.seconds:.0f} s of load", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="keyturn-faults-") as name:
        directory = Path(name)
        with fresh_database(given.database, directory) as url:
            outcome = asyncio.run(run_trial(trial, directory, url))
    if given.report is not None:
        write(outcome, given.database, given.report)
    print(as_page(outcome, given.database))
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())

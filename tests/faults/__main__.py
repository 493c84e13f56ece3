"""`./run faults`: one run with a seed, to see for yourself. Ends with 1 when a promise is broken.

`--long` is the run whose report is kept: 100,000 messages, 1,000 kills, 500 pauses, 50 restarts of Redis, 20 failovers,
cuts of the append-only file, a minute without the database. `--scale 0.1` does a tenth of all that in a tenth of the time, or in
`--seconds`: where faults come more quickly than the machine can make up for, messages wait longer than is promised.
Then it breaks one thing at a time, to see how soon things go on. It runs on PostgreSQL unless told otherwise: on SQLite a process that is paused inside a transaction keeps all the others
from writing for as long, so that times of recovery say more of the pauses than of us.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import uvloop

from shared.settings import Settings
from tests.faults.alone import ROUNDS, measure
from tests.faults.databases import Disk, open_ground, small_disk
from tests.faults.plan import Faults
from tests.faults.replicated import open_replicated
from tests.faults.report import as_page, write, write_alone
from tests.faults.trial import Outcome, Trial, run_trial
from tests.support.platform import no_trouble, random_trouble
from tests.support.servers import Databases, running_valkey
from tests.support.storm import Storm, run_storm

REPORT = Path(__file__).parent / "REPORT.md"
RECOVERY = Path(__file__).parent / "RECOVERY.md"
POISON = ("raise", "refuse", "hang", "crash")
SOAK_RATE = 15  # messages per second
MISHAPS = ("hang=1", "crash=2", "raise=1")

LONG = Trial(
    seed=0,
    messages=100_000,
    keys=10_000,
    seconds=1400.0,
    quiet_seconds=40.0,
    zipf=0.8,
    receivers=3,
    workers=6,
    housekeepers=3,
    mishaps=MISHAPS,
    mishap_share=0.002,
    flood=2_000,
    flood_keys=100,
    lease_seconds=1.5,
    faults=Faults(
        kills=1000,
        pauses=500,
        pause_leases=(1.2, 10.0),
        failpoints=3,
        flushes=5,
        restarts=50,
        tail_cuts=(1.0, 10.0, 1.0, 10.0),
        failovers=20,
        demotions=10,
        silences=20,
        full=(5.0, 20.0),
        read_only=(5.0, 20.0),
        servers=3,
        servers_away=(5.0, 20.0),
        reshapes=5,
        network=40,
        outages=(60.0,),
        blinks=20,
        read_only_databases=(5.0, 20.0),
        locks=(2.0, 5.0, 10.0),
        providers_away=(5.0, 30.0),
        full_disks=(10.0,),
        storms=10,
        clock_steps=20,
    ),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's plan; a new one if not given")
    parser.add_argument(
        "--database", choices=("sqlite", "postgres"), default=None, help="sqlite; postgres for the long form"
    )
    parser.add_argument("--long", action="store_true", help="the long form; about half an hour on two idle cores")
    parser.add_argument("--alone", action="store_true", help=f"one fault at a time, some ten minutes: {RECOVERY.name}")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="a calmer mix for so long; tells what grows")
    parser.add_argument("--storm", type=float, metavar="SECONDS", help="a platform that answers 429 for so long: 60")
    parser.add_argument("--scale", type=float, default=1.0, help="so much of messages, faults and time")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=None, help="how long load and faults last")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--failpoints", type=int, default=1, help="each of them with each action so many times")
    parser.add_argument("--flushes", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2, help="of Redis")
    parser.add_argument("--cuts", type=float, nargs="*", default=[], help="of the append-only file, in seconds")
    parser.add_argument("--failovers", type=int, default=0, help="to a replica that misses the latest writes")
    parser.add_argument("--network", type=int, default=0, help="delays, black holes, half-open connections, cuts")
    parser.add_argument("--demotions", type=int, default=0, help="of Redis' primary, without cutting a connection")
    parser.add_argument("--sentinels", action="store_true", help="leave failovers and demotions to real Sentinels")
    parser.add_argument(
        "--silences", type=int, default=0, help="connections to Redis that never deliver anything again"
    )
    parser.add_argument("--full", type=float, nargs="*", default=[], help="Redis out of memory, in seconds")
    parser.add_argument("--read-only", type=float, nargs="*", default=[], help="Redis without writes, in seconds")
    parser.add_argument("--servers", type=int, default=1, help="Redis servers that share the keys")
    parser.add_argument("--servers-away", type=float, nargs="*", default=[], help="one of several, in seconds")
    parser.add_argument(
        "--reshapes", type=int, default=0, help="changes of PARTITIONS and of the list of Redis servers"
    )
    parser.add_argument(
        "--drain",
        action="store_true",
        help="add a Redis server, drain another and take it out; with --servers 3 or more",
    )
    parser.add_argument("--outages", type=float, nargs="*", default=[], help="of the database, in seconds")
    parser.add_argument("--blinks", type=int, default=0, help="of the database, a fifth of a second each")
    parser.add_argument(
        "--read-only-databases", type=float, nargs="*", default=[], help="PostgreSQL without writes, in seconds"
    )
    parser.add_argument(
        "--database-failovers", type=int, default=0, help="of PostgreSQL to a replica; the old primary comes back"
    )
    parser.add_argument("--pooler", action="store_true", help="PostgreSQL behind a pooler in transaction mode")
    parser.add_argument("--locks", type=float, nargs="*", default=[], help="of the rows of many sessions, in seconds")
    parser.add_argument("--providers-away", type=float, nargs="*", default=[], help="the model's, in seconds")
    parser.add_argument("--full-disks", type=float, nargs="*", default=[], help="in seconds")
    parser.add_argument("--storms", type=int, default=0, help="the platform answers 429")
    parser.add_argument("--clock-steps", type=int, default=0)
    parser.add_argument(
        "--tools",
        type=int,
        metavar="N",
        help="every turn calls N tools: in turn one that reads, a keyed one and one that writes; their effects are counted",
    )
    parser.add_argument("--mishaps", type=float, default=0.0, help="share of messages that hang or crash at first")
    parser.add_argument("--poison", type=float, default=0.0, help="share of messages whose turn always fails")
    parser.add_argument("--flood", type=int, default=500, help="commands with hostile arguments, to chats of their own")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--housekeepers", type=int, default=2)
    parser.add_argument("--lease", type=float, default=2.0, help="lease time in seconds")
    parser.add_argument("--platform", choices=("idempotent", "plain"), default="idempotent")
    parser.add_argument("--trouble", type=float, default=0.02, help="share of callbacks that meet trouble")
    parser.add_argument(
        "--report",
        type=Path,
        nargs="?",
        const=REPORT,
        default=None,
        help=f"write a page (.md) and a JSON, here: {REPORT.name}",
    )
    return parser.parse_args()


def short_form(given: argparse.Namespace) -> Trial:
    faults = Faults(
        kills=given.kills,
        pauses=given.pauses,
        failpoints=given.failpoints,
        flushes=given.flushes,
        restarts=given.restarts,
        tail_cuts=tuple(given.cuts),
        failovers=given.failovers,
        demotions=given.demotions,
        sentinels=given.sentinels,
        silences=given.silences,
        full=tuple(given.full),
        read_only=tuple(given.read_only),
        servers=given.servers,
        servers_away=tuple(given.servers_away),
        reshapes=given.reshapes,
        drain=given.drain,
        network=given.network,
        outages=tuple(given.outages),
        blinks=given.blinks,
        read_only_databases=tuple(given.read_only_databases),
        database_failovers=given.database_failovers,
        pooler=given.pooler,
        locks=tuple(given.locks),
        providers_away=tuple(given.providers_away),
        full_disks=tuple(given.full_disks),
        storms=given.storms,
        clock_steps=given.clock_steps,
    )
    failovers = max(given.failovers, given.database_failovers * 2)
    usual = max(5.0, given.messages / 250, given.kills * 0.4, failovers * 5, sum(given.outages) * 2)
    return Trial(
        seed=0,
        messages=given.messages,
        keys=given.keys,
        seconds=given.seconds if given.seconds is not None else usual,
        faults=faults,
        zipf=0.8,
        receivers=given.receivers,
        workers=given.workers,
        housekeepers=given.housekeepers,
        poison=POISON,
        poison_share=given.poison,
        mishaps=MISHAPS if given.mishaps else (),
        mishap_share=given.mishaps,
        **({"tools": given.tools, "tools_share": 1.0} if given.tools else {}),
        flood=given.flood,
        idempotent=given.platform == "idempotent",
        lease_seconds=given.lease,
        settings={"turn_timeout_seconds": 2.0} if given.poison else {},
    )


def alone_form(database: str, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="keyturn-faults-") as directory:
        print(write_alone(uvloop.run(measure(Path(directory) / "alone", database, seed)), database, seed, RECOVERY))
    return 0


def storm_form(seconds: float) -> int:
    """A storm of 429 answers: how many requests the platform got, and what became of the replies."""
    storm = Storm(seconds, chats=300, messages=3, per_second=30)
    with running_valkey() as redis, tempfile.TemporaryDirectory(prefix="keyturn-storm-") as directory:
        values = {
            "redis_url": redis.url,
            "database_url": Databases("").fresh_sqlite(Path(directory)),
            "data_dir": directory,
            "partitions": 2,
        }
        outcome = uvloop.run(run_storm(lambda **more: Settings(_env_file=None, **values, **more), storm))  # type: ignore[call-arg, arg-type]
    print(f"{outcome.requests} requests, {outcome.allowed:.0f} allowed by the budget, {outcome.refused} answered 429")
    print(f"{outcome.lost} lost, {outcome.chats_out_of_order} chats out of order")
    print(f"{outcome.others_delivered} of {storm.chats} replies on another platform delivered meanwhile")
    return 0 if outcome.holds and outcome.others_delivered == storm.chats else 1


def soak_form(seconds: float) -> Trial:
    """Few enough deaths that processes live long enough to grow; of everything else some, all the time."""
    minutes = max(1, round(seconds / 60))
    faults = Faults(
        kills=max(1, minutes // 4),
        pauses=minutes,
        flushes=max(1, minutes // 20),
        restarts=max(1, minutes // 6),
        failovers=max(1, minutes // 12),
        network=minutes,
        outages=(10.0,) * max(1, minutes // 20),
        storms=max(1, minutes // 10),
        clock_steps=max(1, minutes // 10),
    )
    return Trial(
        seed=0,
        messages=int(seconds * SOAK_RATE),
        keys=max(100, int(seconds)),
        seconds=seconds,
        quiet_seconds=min(60.0, seconds / 10),
        zipf=0.8,
        faults=faults,
        mishaps=MISHAPS,
        mishap_share=0.002,
        housekeepers=2,
        sample_seconds=max(1.0, seconds / 360),
    )


def scaled(trial: Trial, scale: float) -> Trial:
    """So much of it. What happens only a few times still happens once; lengths of time that are faults shrink as well."""
    faults, shrink = trial.faults, min(scale, 1.0)

    def some(count: int) -> int:
        return max(1, round(count * scale)) if count else 0

    return replace(
        trial,
        messages=some(trial.messages),
        keys=some(trial.keys),
        flood=some(trial.flood),
        seconds=trial.seconds * scale,
        quiet_seconds=trial.quiet_seconds * scale,
        faults=replace(
            faults,
            kills=some(faults.kills),
            pauses=some(faults.pauses),
            failpoints=some(faults.failpoints),
            flushes=some(faults.flushes),
            restarts=some(faults.restarts),
            failovers=some(faults.failovers),
            demotions=some(faults.demotions),
            silences=some(faults.silences),
            reshapes=some(faults.reshapes),
            database_failovers=some(faults.database_failovers),
            full=tuple(length * shrink for length in faults.full),
            read_only=tuple(length * shrink for length in faults.read_only),
            servers_away=tuple(length * shrink for length in faults.servers_away),
            network=some(faults.network),
            storms=some(faults.storms),
            clock_steps=some(faults.clock_steps),
            tail_cuts=faults.tail_cuts if scale >= 1 else tuple(sorted(set(faults.tail_cuts))),
            outages=tuple(length * shrink for length in faults.outages),
            blinks=some(faults.blinks),
            read_only_databases=tuple(length * shrink for length in faults.read_only_databases),
            locks=tuple(length * shrink for length in faults.locks),
            providers_away=tuple(length * shrink for length in faults.providers_away),
            full_disks=tuple(max(2.0, length * shrink) for length in faults.full_disks),
        ),
    )


async def run(trial: Trial, database: str, directory: Path, disk: Disk | None) -> Outcome:
    home = disk.directory if disk is not None else directory
    faults = trial.faults
    if faults.database_failovers:
        async with open_replicated() as ground:
            return await run_trial(trial, directory, ground, disk)
    async with open_ground(database, home, proxied=faults.network > 0, pooled=faults.pooler) as single:
        return await run_trial(trial, directory, single, disk)


def main() -> int:
    given = arguments()
    servers = given.long or given.soak or given.database_failovers or given.pooler
    database = given.database or ("postgres" if servers else "sqlite")
    if database == "sqlite" and (given.database_failovers or given.pooler):
        raise SystemExit("--database-failovers and --pooler are for PostgreSQL")
    if given.drain and (given.servers < 3 or given.reshapes):
        raise SystemExit("--drain needs --servers 3 or more, and goes with no --reshapes")
    if given.database_failovers and (given.pooler or given.network or given.read_only_databases or given.full_disks):
        raise SystemExit("--database-failovers goes with no pooler, network fault, read-only database or full disk")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    if given.alone:
        return alone_form(given.database or "postgres", seed)
    if given.storm:
        return storm_form(given.storm)
    trouble = random_trouble(seed, given.trouble) if given.trouble else no_trouble
    form = LONG if given.long else soak_form(given.soak * 60) if given.soak else short_form(given)
    trial = replace(scaled(form, given.scale) if given.scale != 1 else form, seed=seed, trouble=trouble)
    if given.long and given.seconds is not None:
        trial = replace(trial, seconds=given.seconds)
    print(f"seed {seed}, {database}, about {trial.seconds:.0f} s of load", file=sys.stderr)
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="keyturn-faults-")))
        disk = opened.enter_context(small_disk(trial.messages)) if trial.faults.full_disks else None
        outcome = uvloop.run(run(trial, database, directory, disk))
        rounds = max(1, round(ROUNDS * given.scale))
        alone = uvloop.run(measure(directory / "alone", database, seed, rounds)) if given.long else None
    if given.report is not None:
        write(outcome, given.report, alone)
    print(as_page(outcome, alone))
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())

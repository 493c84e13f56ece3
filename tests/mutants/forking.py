"""A process that runs tests in forks of itself, so that libraries are imported once and not for each mutant.

It reads lines of JSON, `{"tests": file of arguments, "limit": seconds without progress}`, and answers each with `{"code": exit
code, or null when the tests came to no end, "output": text}`. It imports nothing of the product: each fork does that, with the
mutant in it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

LIBRARIES = (
    "aiohttp",
    "hypothesis",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "pydantic_settings",
    "pytest",
    "redis.asyncio",
    "rq",
    "starlette.applications",
    "structlog",
    "uvicorn",
)
OPTIONS = (
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "tests.mutants.lent",
    "-p",
    "tests.mutants.planned",
)
LOOK_SECONDS = 0.02
RAN = "MUTANTS_RAN"  # the file in which the plugin `planned` notes the tests that began and ended


def main() -> None:
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(asked["tests"], asked["limit"])), flush=True)


def _answer(tests: str, limit: float) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = os.fork()
        if child == 0:
            _run(tests, output.fileno())
        code = _waited_for(child, limit)
        output.seek(0)
        return {"code": code, "output": output.read()[-20_000:]}


def _run(tests: str, output: int) -> None:
    """In the fork: run the tests, and end."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 70
    try:
        import pytest

        code = int(pytest.main([*OPTIONS, f"@{tests}"]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _waited_for(child: int, limit: float) -> int | None:
    """The exit code of the fork; None when no test began or ended for too long. What it started ends with it."""
    came, since = 0, time.monotonic()
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < since + limit:
        time.sleep(LOOK_SECONDS)
        ended, status = os.waitpid(child, os.WNOHANG)
        if (now := os.stat(os.environ[RAN]).st_size) > came:
            came, since = now, time.monotonic()
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()

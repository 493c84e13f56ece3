"""A process that runs tests in forks of itself, so that libraries are imported once and not for each mutant.

It says that it is ready. Then it reads lines of JSON, `{"tests": file of arguments, "limit": seconds without progress,
"mutant": null or [path, text of the file before, text with the mutant]}`, and answers each with `{"code": exit code, or null when the
tests came to no end, "output": text}`.

With `--warm` it imports the product, too, and each fork puts the mutant into what is imported. Where that cannot be done it answers
`{"cold": true}`. Without, it imports nothing of the product: each fork does that, with the mutant in it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.mutants.groups import calling_files, python_files
from tests.mutants.swapping import Change, Product

LIBRARIES = (
    "aiohttp",
    "hypothesis",
    "prometheus_client",
    "psycopg",
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
    changes_of = _imported() if "--warm" in sys.argv else None
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        changes: list[Change] | None = []
        if changes_of is not None and asked["mutant"] is not None:
            changes = changes_of(*asked["mutant"])
        if changes is None:
            print(json.dumps({"cold": True}), flush=True)
        else:
            print(json.dumps(_answer(asked["tests"], asked["limit"], changes)), flush=True)


def _imported() -> Callable[[str, str, str], list[Change] | None]:
    """Import the product. What a mutant changes in it is asked for by its path and the text before and after."""
    product = Product(Path.cwd(), [*python_files(), *calling_files()])
    from tests.mutants.script_swapping import Scripts  # only here: it imports the product, too

    scripts = Scripts(Path.cwd())
    return lambda path, old, new: product.changes(path, old, new) if path.endswith(".py") else scripts.changes(path)


def _answer(tests: str, limit: float, changes: list[Change]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = os.fork()
        if child == 0:
            _run(tests, output.fileno(), changes)
        code = _waited_for(child, limit)
        output.seek(0)
        return {"code": code, "output": output.read()[-20_000:]}


def _run(tests: str, output: int, changes: list[Change]) -> None:
    """In the fork: put the mutant in, run the tests, and end."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 70
    try:
        import pytest

        for of, name, changed in changes:
            setattr(of, name, changed)
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

"""A copy of the tree in which one mutant at a time lives, with servers of its own, so that nobody else meets it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.mutants.forking import RAN
from tests.mutants.groups import ROOT
from tests.mutants.lent import POSTGRES, VALKEY
from tests.mutants.mutant import Mutant
from tests.mutants.planned import PLAN
from tests.support.servers import running_postgres, running_valkey

PATIENCE = 3.0  # times what a test took without a mutant
TEST_SECONDS = 10.0  # for one test, beyond that
START_SECONDS = 20.0  # to import everything
FRESH_SERVERS_AFTER = 100  # runs
COLD, WARM = "--cold", "--warm"  # runners without and with the product in them
ANSWER_SECONDS = 10.0  # that a server may take before it counts as stuck
OUT_OF_TIME = re.compile(r"\bTimeout(Error)?\b")  # in what pytest says: its own limit, or one that a test sets


@dataclass(frozen=True, slots=True)
class Run:
    """What came of some tests. `blamed` are those that may have failed: one, or all if none had begun."""

    passed: tuple[str, ...]
    blamed: tuple[str, ...] = ()  # empty when all passed
    out_of_time: bool = False


class Copy:
    def __init__(self, directory: Path) -> None:
        self._root = directory
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in listed.stdout.decode().splitlines():
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)
        self._open = ExitStack()
        self._runners: dict[str, subprocess.Popen[str]] = {}
        self._environment: dict[str, str] | None = None
        self._runs = 0

    def run(self, tests: Mapping[str, float], mutant: Mutant | None) -> Run:
        """Run tests with a mutant, or without any. Each test is given with the seconds that it takes without one."""
        if WARM not in self._runners:
            self._start(WARM)  # before the tree holds the mutant: it imports the product
        if mutant is None:
            return self._run(tests, None)
        file = self._root / mutant.path
        source = file.read_text()
        changed = mutant.apply(source)
        file.write_text(changed)  # also for a change of imported functions: processes that the tests start import it
        _forget_bytecode(file)
        try:
            return self._run(tests, (str(mutant.path), source, changed))
        finally:
            file.write_text(source)
            _forget_bytecode(file)

    def close(self) -> None:
        """End the servers and the processes that run the tests."""
        self._runners.clear()
        self._environment = None
        self._open.close()

    def _run(self, tests: Mapping[str, float], change: tuple[str, str, str] | None) -> Run:
        limits = {test: time_limit(seconds) for test, seconds in tests.items()}
        chosen, ran = self._root / "chosen.txt", self._root / "ran.txt"
        chosen.write_text("\n".join(tests))
        ran.write_text("")
        (self._root / "plan.json").write_text(json.dumps(limits))
        limit = max(limits.values()) + time_limit(START_SECONDS)
        question = json.dumps({"tests": str(chosen), "limit": limit, "mutant": change})
        answer = self._ask(WARM, question)
        if "cold" in answer:
            answer = self._ask(COLD, question)
        self._runs += 1
        # A script of a mutant may run for ever, and tests that were cut off leave their databases behind.
        if answer["code"] is None or not self._answers() or self._runs % FRESH_SERVERS_AFTER == 0:
            self.close()
        return came_of(tests, answer["code"], answer["output"], ran.read_text())

    def _ask(self, kind: str, question: str) -> dict[str, Any]:
        runner = self._runners.get(kind) or self._start(kind)
        assert runner.stdin is not None and runner.stdout is not None
        runner.stdin.write(question + "\n")
        runner.stdin.flush()
        answer: dict[str, Any] = json.loads(runner.stdout.readline())
        return answer

    def _start(self, kind: str) -> subprocess.Popen[str]:
        if self._environment is None:
            self._environment = self._start_servers()
        runner = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.forking", kind],
            cwd=self._root,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._runners[kind] = runner
        self._open.callback(runner.wait)
        self._open.callback(runner.kill)
        assert runner.stdout is not None
        runner.stdout.readline()  # it is ready
        return runner

    def _start_servers(self) -> dict[str, str]:
        """The environment of tests that use them."""
        valkey = self._open.enter_context(running_valkey())
        postgres = self._open.enter_context(running_postgres())
        self._redis = redis.Redis.from_url(valkey.url, socket_timeout=ANSWER_SECONDS)
        self._open.callback(self._redis.close)
        environment = {**os.environ, "PYTHONPATH": str(self._root), VALKEY: valkey.url, POSTGRES: postgres.url}
        environment |= {PLAN: str(self._root / "plan.json"), RAN: str(self._root / "ran.txt")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment

    def _answers(self) -> bool:
        with suppress(redis.RedisError):
            return bool(self._redis.config_set("maxmemory", 0))
        return False


def time_limit(seconds: float) -> float:
    """Seconds for a test that took so many: more of them on a machine with more to do than it has processors."""
    return (seconds * PATIENCE + TEST_SECONDS) * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def came_of(tests: Mapping[str, float], code: int | None, output: str, ran: str) -> Run:
    """From pytest's exit code, what it said, and what the plugin `planned` wrote down."""
    lines = [line.partition(" ") for line in ran.splitlines()]
    failed = {test for word, _, test in lines if word == "failed"}
    passed = tuple(test for word, _, test in lines if word == "passed" and test not in failed)
    if code == 0:
        return Run(passed)
    ended = {*failed, *passed}
    running = [test for word, _, test in lines if word == "began" and test not in ended]
    blamed = tuple(failed) or tuple(running) or tuple(test for test in tests if test not in passed) or tuple(tests)
    return Run(passed, blamed, code is None or bool(OUT_OF_TIME.search(output)))


def _forget_bytecode(file: Path) -> None:
    """Same second, same size: Python would not notice that the source has changed."""
    for stale in file.parent.glob(f"__pycache__/{file.stem}.*"):
        stale.unlink()

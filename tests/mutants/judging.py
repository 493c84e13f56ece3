"""Run one mutant's tests in a copy of the tree, so that nobody else meets it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.groups import ROOT
from tests.mutants.mutant import Mutant

PATIENCE = 3.0  # times what the tests took without a mutant: two run at once, and a machine may be slow
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    group: str
    caught: bool
    why: str  # the test that failed, or why none did


class Copy:
    """A copy of the tree in which one mutant at a time lives."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in listed.stdout.decode().splitlines():
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)

    def judge(self, mutant: Mutant, group: str, tests: Sequence[str], seconds: float) -> Verdict:
        """Whether one of the tests fails, or they do not come to an end."""
        if not tests:
            return Verdict(mutant, group, False, "no test reaches it")
        file = self._root / mutant.path
        source = file.read_text()
        file.write_text(mutant.apply(source))
        for stale in file.parent.glob(f"__pycache__/{file.stem}.*"):  # same second, same size: Python would not notice
            stale.unlink()
        try:
            code, output = self._run(tests, seconds * PATIENCE + START_SECONDS)
        finally:
            file.write_text(source)
        if code is None:
            return Verdict(mutant, group, True, "the tests came to no end")
        if code == 0:
            return Verdict(mutant, group, False, f"{len(tests)} tests passed")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return Verdict(mutant, group, True, failed[1] if failed else f"pytest ended with {code}")

    def _run(self, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
        chosen = self._root / "chosen.txt"
        chosen.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        environment = {**os.environ, "PYTHONPATH": str(self._root)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        running = subprocess.Popen(
            [*command, f"@{chosen}"],
            cwd=self._root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        return running.returncode, output

"""Which tests reach which line: measured once with coverage, in the tests' own process and in those that they start.

A child process is counted for the test that started it, by the name that pytest leaves in the environment. A process that
is killed says nothing of what it reached. Lua files and SQL statements are reached where Python names them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from coverage import Coverage, CoverageData

from tests.mutants.groups import GROUPS, ROOT, files_of

KEPT = ROOT / ".tools" / "mutants"
# These run for minutes by themselves: the mutants meet everything else.
LEFT_OUT = ("tests/faults", "tests/bench", "tests/mutants")
SETTINGS = """
[run]
parallel = true
patch = subprocess
context = ${{PYTEST_CURRENT_TEST-}}
data_file = {kept}/coverage
source_dirs =
    {root}/producers
    {root}/shared
    {root}/workers
"""


class Reach:
    def __init__(self, data: CoverageData, seconds: dict[str, float]) -> None:
        self._data = data
        self.seconds = seconds
        self._python = [path for group in GROUPS for path in files_of(group) if path.suffix == ".py"]
        self.tests_of_line = cache(self._tests_of_line)
        self._contexts = cache(self._contexts_of)

    def _tests_of_line(self, path: Path, line: int) -> list[str]:
        """The tests that reach a line, the quickest first."""
        lines = [(path, line)] if path.suffix == ".py" else self._callers(path, line)
        found = {test for caller, number in lines for test in self._contexts(caller).get(number, ())}
        return sorted(found & self.seconds.keys(), key=lambda test: self.seconds[test])

    def _contexts_of(self, path: Path) -> dict[int, set[str]]:
        contexts = self._data.contexts_by_lineno(str(ROOT / path))
        return {line: {name.partition(" (")[0].strip("|") for name in names} for line, names in contexts.items()}

    def _callers(self, script: Path, line: int) -> list[tuple[Path, int]]:
        """The lines of Python that name a Lua file, or another script that includes it, or the SQL statement of a line."""
        if script.suffix == ".sql":
            before = (ROOT / script).read_text().splitlines()[:line]
            names = {[text for text in before if text.startswith("-- name: ")][-1].removeprefix("-- name: ")}
        else:
            including = [other for other in (ROOT / script.parent).glob("*.lua") if script.name in other.read_text()]
            names = {other.stem.upper() for other in including} | {script.stem.upper()}
        pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))
        return [
            (path, number)
            for path in self._python
            for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
            if pattern.search(line)
        ]


def load_reach(jobs: int) -> Reach:
    """The measurement of this very tree; taken now, which takes as long as the suite, if there is none."""
    mark = KEPT / "tree"
    if not mark.exists() or mark.read_text() != _tree():
        _measure(jobs)
        mark.write_text(_tree())
    data = CoverageData(basename=str(KEPT / "coverage"))
    data.read()
    return Reach(data, json.loads((KEPT / "seconds.json").read_text()))


def _tree() -> str:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    digest = hashlib.sha256()
    for name in sorted(listed.stdout.decode().splitlines()):
        if name.endswith((".py", ".lua", ".sql")) and (ROOT / name).exists() and not name.startswith(LEFT_OUT):
            digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()


def _measure(jobs: int) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in [*KEPT.glob("coverage*"), *KEPT.glob("seconds*")]:
        old.unlink()
    settings = KEPT / "settings.ini"
    settings.write_text(SETTINGS.format(kept=KEPT, root=ROOT))
    print("measuring which tests reach which line", file=sys.stderr)
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
    command += ["-p", "tests.mutants.reaching", "-n", str(jobs), "--dist", "loadfile", *ignored]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "KEYTURN_REACH": str(KEPT)})
    if done.returncode != 0:
        raise SystemExit("the tests fail without any mutant: nothing to compare with")
    measured = Coverage(config_file=str(settings))
    measured.combine()
    measured.save()
    seconds: dict[str, float] = {}
    for part in KEPT.glob("seconds-*.json"):
        seconds |= json.loads(part.read_text())
        part.unlink()
    (KEPT / "seconds.json").write_text(json.dumps(seconds))

"""What each test reaches, measured with coverage in the tests' own process and in those that they start.

A child process is counted for the test that started it, by the name that pytest leaves in the environment. A process that
is killed says nothing of what it reached.

The measurement is kept in `.tools/mutants`, one file for each file of tests, with the sources as they were. A file of tests
is measured anew when it has changed. A product file that only changed keeps its measurement: its lines are looked up in the new
text (`lines.carried`); one that is new is reached by the tests that reach its names (`reach`). What tests share (`conftest.py`,
`tests/support`) is not compared. `--measure` measures everything anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData

from tests.mutants.groups import ROOT, calling_files, python_files
from tests.mutants.lines import carried
from tests.support.warm_start import COLD

KEPT = ROOT / ".tools" / "mutants"
FILES_AT_ONCE = 40  # then they are kept: a measurement that is interrupted goes on there
# These run for minutes by themselves: the mutants meet everything else.
LEFT_OUT = ("tests/faults", "tests/bench", "tests/mutants")
SETTINGS = """
[run]
parallel = true
patch = subprocess
context = ${{PYTEST_CURRENT_TEST-}}
data_file = {kept}/coverage
source_dirs =
    {root}/keyturn
    {root}/producers
    {root}/shared
    {root}/workers
"""


@dataclass
class Measured:
    seconds: dict[str, float] = field(default_factory=dict)  # by test
    reached: dict[str, dict[int, set[str]]] = field(default_factory=dict)  # tests by path and line of the present tree


def forget_measured() -> None:
    shutil.rmtree(KEPT, ignore_errors=True)


def measure_missing(jobs: int) -> None:
    """Measure what is not measured, or not any more."""
    (KEPT / "sources").mkdir(parents=True, exist_ok=True)
    product = {str(path): _digest(ROOT / path) for path in (*python_files(), *calling_files())}
    stale = unmeasured()
    for start in range(0, len(stale), FILES_AT_ONCE):
        print(f"measuring what the tests of {len(stale) - start} files reach", file=sys.stderr)
        _measure(stale[start : start + FILES_AT_ONCE], product, jobs)


def unmeasured() -> list[str]:
    """The files of tests that changed since they were measured, or never were."""
    return [name for name in _test_files() if not _is_known(name)]


def load_measured() -> Measured:
    """What the present tests reach in the present tree, as far as it was measured."""
    measured = Measured()
    for name in _test_files():
        if _is_known(name):
            _add(measured, _page(name))
    return measured


def _test_files() -> list[str]:
    found = (str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted((name for name in found if not name.startswith(LEFT_OUT)), reverse=True)  # unit tests first


def _is_known(name: str) -> bool:
    return _kept(name).exists() and bool(_page(name)["digest"] == _digest(ROOT / name))


@cache
def _page(name: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(_kept(name).read_text())
    return page


def _kept(name: str) -> Path:
    return KEPT / (name.replace("/", "-") + ".json")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _measure(names: list[str], product: dict[str, str], jobs: int) -> None:
    """Run these files of tests and keep what they reached. Tests that fail without any mutant are left out, and named."""
    for old in [*KEPT.glob("coverage*"), *KEPT.glob("ran-*")]:
        old.unlink()
    settings = KEPT / "settings.ini"
    settings.write_text(SETTINGS.format(kept=KEPT, root=ROOT))
    digests = {name: _digest(ROOT / name) for name in names}
    for path, digest in product.items():
        shutil.copyfile(ROOT / path, KEPT / "sources" / digest)
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
    command += ["-p", "tests.mutants.reaching", "-n", str(jobs), "--dist", "loadfile", *names]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "MUTANTS_REACH": str(KEPT), COLD: "1"})
    combined = Coverage(config_file=str(settings))
    combined.combine()
    combined.save()
    for test in keep(combined.get_data(), ROOT, digests, product):
        print(f"fails without any mutant, so it meets none: {test}", file=sys.stderr)


def keep(data: CoverageData, root: Path, digests: dict[str, str], product: dict[str, str]) -> list[str]:
    """Keep what each test reached, except those that failed: these are returned, and files of which no test ran."""
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for part in KEPT.glob("ran-*.json"):
        ran = json.loads(part.read_text())
        seconds |= ran["seconds"]
        failed |= {*ran["failed"]}
    pages: dict[str, dict[str, Any]] = {
        name: {"digest": digest, "sources": product, "seconds": {}, "reached": {}} for name, digest in digests.items()
    }
    for test, spent in seconds.items():
        if test not in failed and (page := pages.get(test.partition("::")[0])) is not None:
            page["seconds"][test] = spent
    for path in product:
        for line, contexts in data.contexts_by_lineno(str(root / path)).items():
            for test in {context.partition(" (")[0].strip("|") for context in contexts} & (seconds.keys() - failed):
                if (page := pages.get(test.partition("::")[0])) is not None:
                    page["reached"].setdefault(test, {}).setdefault(path, []).append(line)
    for name, page in pages.items():
        if page["seconds"]:
            _kept(name).write_text(json.dumps(page))
    _page.cache_clear()
    return sorted(failed | {name for name, page in pages.items() if not page["seconds"]})


def _add(measured: Measured, page: dict[str, Any]) -> None:
    measured.seconds |= page["seconds"]
    for test, files in page["reached"].items():
        for path, lines in files.items():
            if not (ROOT / path).exists():
                continue
            stands = _stands(path, page["sources"][path])
            here = measured.reached.setdefault(path, {})
            for line in lines:
                for now in (line,) if stands is None else stands.get(line, ()):
                    here.setdefault(now, set()).add(test)


@cache
def _stands(path: str, digest: str) -> dict[int, list[int]] | None:
    """How lines of the measured source are numbered now; None if it is the same."""
    if _digest(ROOT / path) == digest:
        return None
    return carried((KEPT / "sources" / digest).read_text(), (ROOT / path).read_text())

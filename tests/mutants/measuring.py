"""What each test reaches, measured with coverage in the tests' own process and in those that they start.

A child process is counted for the test that started it, by the name that pytest leaves in the environment. A process that
is killed says nothing of what it reached.

The measurement is kept in `.tools/mutants`, one file for each file of tests, with the sources as they were,
as soon as its tests have ended: a measurement that is interrupted goes on there. A file of tests
is measured anew when it has changed. A product file that only changed keeps its measurement: its lines are looked up in the new
text (`lines.carried`); one that is new is reached by the tests that reach its names (`reach`). What tests share (`conftest.py`,
`tests/support`) is not compared. `--measure` measures everything anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from coverage import CoverageData
from coverage.exceptions import CoverageException

from tests.mutants.groups import ROOT, calling_files, python_files
from tests.mutants.lines import carried

KEPT = ROOT / ".tools" / "mutants"
DIRECTORY = "MUTANTS_DIRECTORY"  # of what one process measures
# These run for minutes by themselves, or run no code of the product (tests/model): the mutants meet everything else.
LEFT_OUT = ("tests/faults", "tests/bench", "tests/mutants", "tests/model")
SETTINGS = """
[run]
parallel = true
patch = subprocess
context = ${{PYTEST_CURRENT_TEST-}}
data_file = {directory}/coverage
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


def measure_missing(jobs: int, only: Sequence[str] = ()) -> None:
    """Measure what is not measured, or not any more; only files below the given folders, if some are given."""
    (KEPT / "sources").mkdir(parents=True, exist_ok=True)
    stale = [name for name in unmeasured() if not only or name.startswith(tuple(only))]
    if not stale:
        return
    print(f"measuring what the tests of {len(stale)} files reach", file=sys.stderr)
    with ThreadPoolExecutor(jobs) as pool:  # the files take turns, so that each process gets quick and slow ones
        list(pool.map(_measure, (stale[number::jobs] for number in range(jobs)), range(jobs)))
    _page.cache_clear()
    for name in {*unmeasured()} & {*stale}:
        print(f"none of its tests passes without any mutant, so they meet none: {name}", file=sys.stderr)


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
    return _kept(name).exists() and bool(_page(name)["digest"] == _digest(ROOT / name) and _page(name)["seconds"])


@cache
def _page(name: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(_kept(name).read_text())
    return page


def _kept(name: str) -> Path:
    return KEPT / (name.replace("/", "-") + ".json")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _measure(names: list[str], number: int) -> None:
    """Run these files of tests in one process. It keeps what a file's tests reached as soon as they have ended."""
    directory = KEPT / f"running-{number}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    settings = directory / "settings.ini"
    settings.write_text(SETTINGS.format(directory=directory, root=ROOT))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
    command += ["-p", "tests.mutants.reaching", "-p", "no:xdist", *names]
    subprocess.run(command, cwd=ROOT, env={**os.environ, DIRECTORY: str(directory)})
    shutil.rmtree(directory)


def kept_sources() -> dict[str, str]:
    """Keep the present product files; their digests by path."""
    sources = {str(path): _digest(ROOT / path) for path in (*python_files(), *calling_files())}
    for path, digest in sources.items():
        if not (KEPT / "sources" / digest).exists():
            shutil.copyfile(ROOT / path, KEPT / "sources" / digest)
    return sources


def keep(
    name: str, own: CoverageData, directory: Path, sources: Mapping[str, str], passed: Mapping[str, float]
) -> None:
    """Keep what each test of a file reached, by the process of the tests and by those that they started."""
    reached: dict[str, dict[str, list[int]]] = {}
    for data in chain((own,), _of_children(directory, own)):  # one after the other: each is removed after it was read
        data.set_query_contexts([re.escape(name) + "::"])
        for path in sources:
            for line, contexts in data.contexts_by_lineno(str(ROOT / path)).items():
                for test in {context.partition(" (")[0].strip("|") for context in contexts} & passed.keys():
                    reached.setdefault(test, {}).setdefault(path, []).append(line)
    page = {"digest": _digest(ROOT / name), "sources": {**sources}, "seconds": {**passed}, "reached": reached}
    written = directory / "page.json"
    written.write_text(json.dumps(page))
    written.replace(_kept(name))


def _of_children(directory: Path, own: CoverageData) -> Iterator[CoverageData]:
    """What processes that have ended wrote down. One that is still writing is read after the next file of tests."""
    for part in directory.glob("coverage.*"):
        if str(part) == own.data_filename() or part.name.endswith("-journal") or not part.stat().st_size:
            continue
        data = CoverageData(str(part))
        with suppress(CoverageException):
            data.read()
            data.measured_contexts()  # fails where a table is not there yet
            yield data
            part.unlink()


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

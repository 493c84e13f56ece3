"""`./run mutants`: change the code in small ways, and see whether the tests notice.

A seed chooses the mutants, the same number in each group. Each one meets the tests that reach its line, the nearest and quickest
first. Ends with 1 when a group catches less than 90 %. The first run measures what each test reaches, as long as the suite takes;
later ones measure only the files of tests that changed. The machine need not be quiet.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import python_source, script_source
from tests.mutants.groups import GROUPS, ROOT, files_of
from tests.mutants.judging import Fate, Judge, Verdict
from tests.mutants.measuring import forget_measured, load_measured, measure_missing, unmeasured
from tests.mutants.mutant import Mutant
from tests.mutants.reach import Reach
from tests.mutants.tree_copy import Copy

GOAL = 0.9
BUDGET_SECONDS = 90.0  # of tests for a mutant, by what they took without one; the quickest come first


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="of mutants, over all groups")
    parser.add_argument("--seed", type=int, default=None, help="repeats a choice; a new one if not given")
    parser.add_argument("--group", choices=sorted(GROUPS), action="append", help="only this group; may be repeated")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATH", help="only files whose path begins so; may be repeated"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument("--list", action="store_true", help="show the chosen mutants and run nothing")
    parser.add_argument("--measure", action="store_true", help="measure anew what every test reaches")
    parser.add_argument(
        "--tests", action="append", default=[], help="measure only below this folder or file; may be repeated"
    )
    parser.add_argument("--as-measured", action="store_true", help="leave out tests that were not measured yet")
    parser.add_argument("--report", type=Path, default=None, help="write the survivors to this page (.md)")
    return parser.parse_args()


def choose(group: str, count: int, seed: int, only: Sequence[str] = ()) -> list[Mutant]:
    """The same ones for the same seed and the same tree."""
    paths = [path for path in files_of(group) if not only or str(path).startswith(tuple(only))]
    every = [mutant for path in paths for mutant in mutants_of(path)]
    return random.Random(f"{seed} {group}").sample(every, min(count, len(every)))


def mutants_of(path: Path) -> list[Mutant]:
    source = (ROOT / path).read_text()
    if path.suffix == ".py":
        return python_source.mutants_of(path, source)
    return script_source.mutants_of(path, source)


def judge_all(chosen: list[tuple[str, Mutant]], reach: Reach, jobs: int, budget: float) -> Iterator[Verdict]:
    judges: SimpleQueue[Judge] = SimpleQueue()

    def judged(group: str, mutant: Mutant) -> Verdict:
        judge = judges.get()
        try:
            tests = affordable(reach, mutant, budget)
            return judge.judge(mutant, group, {test: reach.seconds[test] for test in tests})
        finally:
            judges.put(judge)

    with tempfile.TemporaryDirectory(prefix="keyturn-mutants-") as directory, ExitStack() as opened:
        for number in range(jobs):
            judges.put(Judge(opened.enter_context(closing(Copy(Path(directory) / str(number))))))
        with ThreadPoolExecutor(jobs) as pool:
            for future in as_completed([pool.submit(judged, group, mutant) for group, mutant in chosen]):
                yield future.result()


def affordable(reach: Reach, mutant: Mutant, budget: float) -> list[str]:
    """The tests that reach it, the nearest first, as many as the budget pays for, and one at least."""
    tests: list[str] = []
    for test in reach.tests_of_line(mutant.path, mutant.line):
        budget -= reach.seconds[test]
        if tests and budget < 0:
            break
        tests.append(test)
    return tests


def as_page(verdicts: list[Verdict], seed: int, left_out: Sequence[str]) -> str:
    lines = [f"# Mutants, seed {seed}", ""]
    if left_out:
        lines += [
            f"{len(left_out)} files of tests were not measured. They met no mutant, so the figures are too low.",
            "",
        ]
    lines += ["| group | mutants | caught | out of time |", "|---|---|---|---|"]
    for group in GROUPS:
        fates = [verdict.fate for verdict in verdicts if verdict.group == group]
        if fates:
            caught = fates.count(Fate.CAUGHT)
            lines.append(
                f"| {group} | {len(fates)} | {caught} ({caught / len(fates):.1%}) | {fates.count(Fate.TIMEOUT)} |"
            )
    lines += ["", "Survivors:", ""]
    left = [verdict for verdict in verdicts if verdict.fate is not Fate.CAUGHT]
    lines += [f"- {verdict.group}: {verdict.mutant} ({verdict.why})" for verdict in left]
    return "\n".join(lines) + "\n"


def main() -> int:
    given = arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    groups = given.group or list(GROUPS)
    samples = [
        [(group, mutant) for mutant in choose(group, given.count // len(groups), seed, given.only)] for group in groups
    ]
    # The groups take turns, so that a run that is ended early has tried as many of each.
    chosen = [one for turn in zip_longest(*samples) for one in turn if one is not None]
    if given.list:
        print(*(f"{group}: {mutant}" for group, mutant in chosen), sep="\n")
        return 0
    print(f"seed {seed}, {len(chosen)} mutants", file=sys.stderr)
    if given.measure:
        forget_measured()
    if not given.as_measured:
        measure_missing(given.jobs + 1, given.tests)
    left_out = unmeasured()
    reach = Reach(load_measured())
    verdicts: list[Verdict] = []
    for verdict in judge_all(chosen, reach, given.jobs, given.budget):
        verdicts.append(verdict)
        place = f"{len(verdicts)}/{len(chosen)} {verdict.fate.value:8} {verdict.group}"
        print(f"{place}: {verdict.mutant} ({verdict.why})", file=sys.stderr, flush=True)
    page = as_page(verdicts, seed, left_out)
    print(page)
    if given.report is not None:
        given.report.write_text(page)
    rates = [[verdict.fate is Fate.CAUGHT for verdict in verdicts if verdict.group == group] for group in groups]
    return 0 if all(sum(rate) >= GOAL * len(rate) for rate in rates) else 1


if __name__ == "__main__":
    raise SystemExit(main())

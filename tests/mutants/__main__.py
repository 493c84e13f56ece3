"""`./run mutants`: change the code in small ways, and see whether the tests notice.

A seed chooses the mutants, the same number in each group. Each one meets the tests that reach its line, the quickest first.
Ends with 1 when a group catches less than 90 %. The first run measures what each test reaches, as long as the suite takes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import python_source, script_source
from tests.mutants.groups import GROUPS, ROOT, files_of
from tests.mutants.judging import Copy, Verdict
from tests.mutants.mutant import Mutant
from tests.mutants.reach import Reach, load_reach

GOAL = 0.9
BUDGET_SECONDS = 90.0  # of tests for a mutant, by what they took without one; the quickest come first


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="of mutants, over all groups")
    parser.add_argument("--seed", type=int, default=None, help="repeats a choice; a new one if not given")
    parser.add_argument("--group", choices=sorted(GROUPS), action="append", help="only this group; may be repeated")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument("--list", action="store_true", help="show the chosen mutants and run nothing")
    parser.add_argument("--report", type=Path, default=None, help="write the survivors to this page (.md)")
    return parser.parse_args()


def choose(group: str, count: int, seed: int) -> list[Mutant]:
    """The same ones for the same seed and the same tree."""
    every = [mutant for path in files_of(group) for mutant in mutants_of(path)]
    return random.Random(f"{seed} {group}").sample(every, min(count, len(every)))


def mutants_of(path: Path) -> list[Mutant]:
    source = (ROOT / path).read_text()
    if path.suffix == ".py":
        return python_source.mutants_of(path, source)
    return script_source.mutants_of(path, source)


def judge_all(chosen: list[tuple[str, Mutant]], reach: Reach, jobs: int, budget: float) -> Iterator[Verdict]:
    copies: SimpleQueue[Copy] = SimpleQueue()

    def judge(group: str, mutant: Mutant, tests: list[str]) -> Verdict:
        copy = copies.get()
        try:
            return copy.judge(mutant, group, tests, sum(reach.seconds[test] for test in tests))
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="keyturn-mutants-") as directory, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            copies.put(Copy(Path(directory) / str(number)))
        futures = [pool.submit(judge, group, mutant, affordable(reach, mutant, budget)) for group, mutant in chosen]
        for future in as_completed(futures):
            yield future.result()


def affordable(reach: Reach, mutant: Mutant, budget: float) -> list[str]:
    """The tests that reach it, the quickest first, as many as the budget pays for, and one at least."""
    tests: list[str] = []
    for test in reach.tests_of_line(mutant.path, mutant.line):
        budget -= reach.seconds[test]
        if tests and budget < 0:
            break
        tests.append(test)
    return tests


def as_page(verdicts: list[Verdict], seed: int) -> str:
    lines = [f"# Mutants, seed {seed}", "", "| group | mutants | caught |", "|---|---|---|"]
    for group in GROUPS:
        judged = [verdict for verdict in verdicts if verdict.group == group]
        if judged:
            caught = sum(verdict.caught for verdict in judged)
            lines.append(f"| {group} | {len(judged)} | {caught} ({caught / len(judged):.0%}) |")
    lines += ["", "Survivors:", ""]
    lines += [f"- {verdict.group}: {verdict.mutant} ({verdict.why})" for verdict in verdicts if not verdict.caught]
    return "\n".join(lines) + "\n"


def main() -> int:
    given = arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    groups = given.group or list(GROUPS)
    chosen = [(group, mutant) for group in groups for mutant in choose(group, given.count // len(groups), seed)]
    if given.list:
        print(*(f"{group}: {mutant}" for group, mutant in chosen), sep="\n")
        return 0
    print(f"seed {seed}, {len(chosen)} mutants", file=sys.stderr)
    verdicts: list[Verdict] = []
    for verdict in judge_all(chosen, load_reach(given.jobs + 1), given.jobs, given.budget):
        verdicts.append(verdict)
        word = "caught  " if verdict.caught else "SURVIVED"
        print(f"{len(verdicts)}/{len(chosen)} {word} {verdict.mutant} ({verdict.why})", file=sys.stderr, flush=True)
    page = as_page(verdicts, seed)
    print(page)
    if given.report is not None:
        given.report.write_text(page)
    rates = [[verdict.caught for verdict in verdicts if verdict.group == group] for group in groups]
    return 0 if all(sum(rate) >= GOAL * len(rate) for rate in rates) else 1


if __name__ == "__main__":
    raise SystemExit(main())

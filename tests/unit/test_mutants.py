"""`./run mutants` finds the tests of a line, keeps them when files change, and leaves out what nobody could notice."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
from coverage import CoverageData

from shared.redis_servers import Script
from shared.store.database.statements import STATEMENTS, Statement
from tests.mutants import measuring, script_source
from tests.mutants.groups import ROOT
from tests.mutants.judging import Fate, Judge
from tests.mutants.lines import carried, names_for, statement_of
from tests.mutants.measuring import Measured, keep
from tests.mutants.mutant import Mutant
from tests.mutants.python_source import mutants_of
from tests.mutants.reach import Reach
from tests.mutants.script_swapping import Scripts
from tests.mutants.swapping import Product
from tests.mutants.tree_copy import Run, came_of

SOURCE = dedent("""\
    LIMIT = 10

    def cut(
        text: str,
        at: int = LIMIT,
    ) -> str:
        try:
            return text[
                :at
            ]
        except (TypeError, ValueError):
            return ""
    """)


@pytest.mark.parametrize(
    ("line", "lines", "runs"),
    [
        (1, range(1, 2), False),
        (5, range(7, 13), True),  # a default: the body uses it
        (9, range(8, 11), True),
        (11, range(11, 12), True),
        (12, range(12, 13), True),
    ],
)
def test_a_line_is_reached_by_what_reaches_its_statement(line: int, lines: range, runs: bool) -> None:
    found = statement_of(SOURCE, line)
    assert (found.lines, found.runs) == (lines, runs)


def test_a_constant_of_a_module_is_reached_where_it_is_named() -> None:
    assert statement_of(SOURCE, 1).names == ("LIMIT",)


def test_an_attribute_is_reached_where_its_class_is_named() -> None:
    source = "class Put(Enum):\n    WOKEN = 1\n"
    assert statement_of(source, 2).names == ("WOKEN", "Put")


def test_lines_that_only_moved_keep_their_tests() -> None:
    assert carried("a\nb\nc\n", "new\na\nb\nc\n") == {0: [1], 1: [1, 2], 2: [3], 3: [4]}


def test_a_changed_line_has_the_tests_of_the_lines_around_it() -> None:
    stands = carried("a\nb\nc\n", "a\nB\nc\n")
    assert [line for line, now in stands.items() if 2 in now] == [1, 2, 3]


def test_what_a_process_reached_that_a_test_started_counts_for_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path = "tests/unit/test_mutants.py", "shared/keys.py"
    for number, process in enumerate(("own", "child"), 1):
        data = CoverageData(str(tmp_path / f"coverage.{process}"))
        data.set_context(f"{name}::test_one (call)")
        data.add_lines({str(ROOT / path): [number]})
        data.write()
    (tmp_path / "coverage.unfinished").touch()  # by a process that is still there
    own = CoverageData(str(tmp_path / "coverage.own"))
    own.read()
    monkeypatch.setattr(measuring, "_kept", lambda _: tmp_path / "kept.json")
    keep(name, own, tmp_path, {path: "digest"}, {f"{name}::test_one": 1.0})
    page = json.loads((tmp_path / "kept.json").read_text())
    assert page["reached"] == {f"{name}::test_one": {path: [1, 2]}}
    assert {found.name for found in tmp_path.glob("coverage.*")} == {"coverage.own", "coverage.unfinished"}


def what(source: str) -> list[str]:
    return [mutant.apply(source) for mutant in mutants_of(Path("a.py"), source)]


def test_a_limit_is_doubled_and_a_small_number_is_raised() -> None:
    assert what("LIMIT = 256\n") == ["LIMIT = 512\n"]
    assert what("PARTS = 3\n") == ["PARTS = 4\n"]
    script = "SELECT SUBSTR(text, 1, 500)\n"
    changed = [mutant.apply(script) for mutant in script_source.mutants_of(Path("a.sql"), script)]
    assert changed == ["SELECT SUBSTR(text, 2, 500)\n", "SELECT SUBSTR(text, 1, 1000)\n"]


@pytest.mark.parametrize(
    "source",
    [
        "RETRY_SECONDS = 0.5\n",
        "AT_ONCE = 500\n",
        "WAIT = timedelta(minutes=1)\n",
        "both = zip(a, b, strict=True)\n",
        "await asyncio.sleep(pause)\n",
        "survived('loop', 'what', error, key=key)\n",
        "reach('before')\n",
        "def f():\n    return False\n",
        "if not found and (a or b < c):\n    log.get().warning('gone')\n",
        "asyncio.wait(tasks, timeout=0.1)\n",
        "gc.freeze()\n",
        "T = TypeVar('T', bound=Part)\n",
        "task = asyncio.create_task(work(), name='work')\n",
        "SIGN_TTL_S = 7 * 86_400\n",
        "digest = sha1(text, usedforsecurity=False)\n",
        "late = time.monotonic() > ends\n",
        "late = spent > LOOK_SECONDS\n",
        "SOON = timedelta(seconds=5)\nis_short = delay <= SOON\n",
        "pause = min(pause * 2, 0.2)\n",
        "await connection.disconnect(nowait=True)\n",
    ],
)
def test_what_nobody_could_notice_is_left_alone(source: str) -> None:
    changed = [text for text in what(source) if "return True" not in text]
    assert [text for text in changed if text not in ("pass\n", "asyncio.wait(tasks)\n")] == []


def test_the_value_that_exists_selects_is_left_alone() -> None:
    script = "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE n > 2)\n"
    changed = [mutant.apply(script) for mutant in script_source.mutants_of(Path("a.sql"), script)]
    assert changed and all("(SELECT 1 FROM" in text for text in changed)


def test_a_time_that_is_missing_in_a_script_is_long_ago_by_a_millisecond_more_or_less() -> None:
    script = "if (tonumber(held[2]) or 0) > at then return 3 end\n"
    changed = [mutant.apply(script) for mutant in script_source.mutants_of(Path("a.lua"), script)]
    assert changed and all("or 0) " in text or "and 0) " in text for text in changed)
    assert any("return 4" in text for text in changed)


def test_a_script_is_reached_where_the_constant_that_holds_it_is_named() -> None:
    source = 'TICKET, OTHER = (load(f"{name}.lua") for name in ("session_lock", "unaware"))\nSTOP = load("stop.lua")\n'
    assert names_for(source, "session_lock") == {"TICKET", "OTHER"}
    assert names_for(source, "stop") == {"STOP"}
    assert names_for('PUT, START = (load(name) for name in ("put", "start"))\n', "put") == {"PUT"}


def test_a_condition_on_which_more_hangs_than_a_log_line_is_tried() -> None:
    assert what("if a:\n    log.get().info('a')\n    stop()\n") == [
        "if (not (a)):\n    log.get().info('a')\n    stop()\n",
        "if a:\n    log.get().info('a')\n    pass\n",
    ]
    assert what("if a:\n    log.get().info('a')\nelse:\n    stop()\n")[0].startswith("if (not (a))")


def test_a_mutant_changes_the_one_place_that_it_names() -> None:
    [one, other] = mutants_of(Path("a.py"), "ok = a < b and True\n")[:2]
    assert isinstance(one, Mutant) and isinstance(other, Mutant)
    assert {m.apply("ok = a < b and True\n") for m in (one, other)} <= set(what("ok = a < b and True\n"))


MUTANT = Mutant(Path("a.py"), 1, 0, "a", "b", "change it")
ALONE = "without any mutant"


class Told:
    """Runs no test: it says what came of them, as it was told."""

    def __init__(self, **outcomes: str) -> None:
        self.outcomes = outcomes
        self.ran: list[tuple[str, ...]] = []

    def run(self, tests: Mapping[str, float], mutant: Mutant | None) -> Run:
        self.ran.append((*tests,) if mutant is not None else (ALONE, *tests))
        passed: list[str] = []
        for test in tests:
            outcome = self.outcomes.get(test, "passes")
            if outcome == "always fails" or (mutant is not None and outcome in ("fails", "hangs")):
                return Run(tuple(passed), (test,), out_of_time=outcome == "hangs")
            if outcome == "always slow":
                return Run(tuple(passed), (test,), out_of_time=True)
            passed.append(test)
        return Run(tuple(passed))


def fate_of(copy: Told, *tests: str) -> Fate:
    return Judge(copy).judge(MUTANT, "logic", dict.fromkeys(tests, 1.0)).fate


def test_a_mutant_is_caught_by_a_test_that_fails_with_it_and_passes_without_it() -> None:
    copy = Told(b="fails")
    assert fate_of(copy, "a", "b", "c") is Fate.CAUGHT
    assert copy.ran == [("a", "b", "c"), (ALONE, "b")]


def test_a_test_that_fails_without_a_mutant_catches_none_and_hides_none() -> None:
    assert fate_of(Told(a="always fails"), "a", "b") is Fate.SURVIVED
    assert fate_of(Told(a="always fails", b="fails"), "a", "b") is Fate.CAUGHT


def test_a_test_that_is_known_to_pass_is_not_tried_again_without_the_mutant() -> None:
    copy = Told(b="fails")
    judge = Judge(copy)
    for _ in range(2):
        judge.judge(MUTANT, "logic", {"a": 1.0, "b": 1.0})
    assert [ran for ran in copy.ran if ran[0] == ALONE] == [(ALONE, "b")]


def test_running_out_of_time_catches_a_mutant_only_if_the_test_ends_without_it() -> None:
    assert fate_of(Told(a="hangs"), "a") is Fate.CAUGHT
    assert fate_of(Told(a="always slow"), "a", "b") is Fate.TIMEOUT
    assert fate_of(Told(a="always slow", b="fails"), "a", "b") is Fate.CAUGHT


def test_the_nearest_tests_run_before_the_others_are_imported() -> None:
    copy = Told()
    assert fate_of(copy, *"abcdef") is Fate.SURVIVED
    assert copy.ran == [("a", "b", "c", "d"), ("e", "f")]


@pytest.mark.parametrize(
    ("code", "output", "ran", "expected"),
    [
        (0, "", "began a\npassed a\nbegan b\npassed b\n", Run(("a", "b"))),
        (1, "assert 1", "began a\npassed a\nbegan b\nfailed b\npassed b\n", Run(("a",), ("b",))),
        (1, "Timeout (>10.0s)", "began a\nfailed a\n", Run((), ("a",), out_of_time=True)),
        (1, "TimeoutError", "began a\nfailed a\n", Run((), ("a",), out_of_time=True)),
        (None, "", "began a\npassed a\nbegan b\n", Run(("a",), ("b",), out_of_time=True)),
        (4, "ImportError", "", Run((), ("a", "b"))),  # the product could not be imported
    ],
)
def test_what_came_of_tests_is_read_from_how_pytest_ended(
    code: int | None, output: str, ran: str, expected: Run
) -> None:
    assert came_of({"a": 1.0, "b": 1.0}, code, output, ran) == expected


def test_the_nearest_and_quickest_tests_of_a_line_come_first() -> None:
    path, other = "shared/backoff.py", "shared/codec.py"
    line = next(n for n, text in enumerate((ROOT / path).read_text().splitlines(), 1) if text.startswith("    return"))
    far, near, slow = "far", "near", "slow"
    reached = {path: {line: {far, near, slow}}, other: {n: {far} for n in range(1, 100)}}
    reach = Reach(Measured({far: 0.1, near: 0.1, slow: 1.0}, reached))
    assert reach.tests_of_line(Path(path), line) == [near, slow, far]


def test_a_constant_is_reached_by_the_tests_in_whose_file_it_is_named() -> None:
    path = Path("producers/telegram/connect.py")
    line = next(n for n, text in enumerate((ROOT / path).read_text().splitlines(), 1) if "secret=True" in text)
    naming, other = "tests/unit/test_connecting.py::test_a", "tests/unit/test_mutants_lines.py::test_b"
    assert Reach(Measured({naming: 0.1, other: 0.1}, {})).tests_of_line(path, line) == [naming]


IMPORTED = dedent("""\
    from functools import cache

    LIMIT = 10

    def made():
        return 1 + 1

    AT_IMPORT = made()

    class Cutter:
        @cache
        def cut(self, text):
            def short(most=LIMIT):
                return len(text) < most
            return "short" if short() else "long"
    """)


@pytest.mark.parametrize(
    ("text", "by", "changed"),
    [
        ("len(text) < most", "len(text) <= most", "short"),  # in a function that another one makes
        ('"long"', '"very long"', "very long"),
        ("most=LIMIT", "most=11", "short"),  # a default of a function that is made anew by each call
        ("1 + 1", "1 - 1", None),  # it ran at the import
        ("LIMIT = 10", "LIMIT = 20", None),
    ],
)
def test_a_mutant_is_put_into_an_imported_product_where_it_changes_only_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, by: str, changed: str | None
) -> None:
    file = Path(f"imported_{tmp_path.name}.py")
    (tmp_path / file).write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    changes = Product(tmp_path, [file]).changes(str(file), IMPORTED, IMPORTED.replace(text, by))
    module = sys.modules.pop(file.stem)
    for function, name, code in changes or ():
        setattr(function, name, code)
    assert (None if changes is None else module.Cutter().cut("ten chars!")) == changed


def test_a_mutant_is_put_into_every_imported_script_that_includes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "lane").mkdir()
    (folder / "part.lua").write_text("redis.call('GET', 'a')")
    (folder / "whole.lua").write_text("-- include part.lua\nreturn 1")
    (folder / "other.lua").write_text("return 2")
    module = ModuleType("imported_scripts")
    whole, other = (Script.load(folder / f"{name}.lua") for name in ("whole", "other"))
    vars(module).update(WHOLE=whole, OTHER=other)
    monkeypatch.setitem(sys.modules, "imported_scripts", module)
    scripts = Scripts(tmp_path)
    (folder / "part.lua").write_text("redis.call('DEL', 'a')")
    for script, name, now in scripts.changes("lane/part.lua") or ():
        setattr(script, name, now)
    assert whole == Script.load(folder / "whole.lua") and whole.commands == ("DEL",)
    assert other.source == "return 2"


def test_a_mutant_is_put_into_an_imported_statement_unless_the_import_would_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "-- name: toy\n-- A toy.\nSELECT id FROM toys WHERE id = :id"
    toy = Statement("toy", "SELECT id FROM toys WHERE id = :id", "SELECT id FROM toys WHERE id = :id")
    monkeypatch.setitem(STATEMENTS, "toy", toy)
    scripts = Scripts(tmp_path)
    (tmp_path / "toys.sql").write_text(text.replace(" = ", " <> "))
    for statement, name, now in scripts.changes("toys.sql") or ():
        setattr(statement, name, now)
    assert toy.sqlite == toy.postgres == "SELECT id FROM toys WHERE id <> :id"
    (tmp_path / "toys.sql").write_text(text.replace(" WHERE id = :id", ""))
    assert scripts.changes("toys.sql") is None

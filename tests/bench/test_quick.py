"""The benchmark runs, and says what it means to say. How long anything took is not judged here."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest

from tests.bench.__main__ import main
from tests.bench.board import Absent, Board, Variant
from tests.bench.cases import CASES
from tests.bench.chart import draw
from tests.bench.goals import GOALS, judge
from tests.bench.load import arrivals
from tests.bench.measure import measure
from tests.bench.record import Record, Watch
from tests.bench.sizes import TINY


def a_board(**rates: float) -> Board:
    board = Board()
    for name, rate in rates.items():
        board.row("ordered", name.replace("_", " ")).samples.append({"rate": rate})
    return board


def test_the_smallest_form_measures_every_contestant_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cases = (
        "ordered",
        "accept",
        "receivers",
        "latency",
        "history",
        "watching",
        "streaming",
        "plain answer",
        "replies",
        "sharing",
        "space",
        "retention",
    )
    chosen = [word for case in cases for word in ("--only", case)]
    written = ["--json", str(tmp_path / "bench.json"), "--chart", str(tmp_path / "bench.svg")]
    assert main(["--tiny", "--no-peers", "--no-postgres", *chosen, *written]) == 0, capfd.readouterr()
    report = orjson.loads((tmp_path / "bench.json").read_bytes())
    ran = [row for row in report["rows"] if "PostgreSQL" not in row["variant"]]
    assert {row["case"] for row in ran} == set(cases)
    assert all(row["figures"] and not row["failed"] for row in ran), ran
    assert all(row["figures"]["violations"]["max"] == 0 for row in ran if row["case"] == "ordered")
    assert {goal["number"] for goal in report["goals"]} == set(range(1, 13))
    ElementTree.fromstring((tmp_path / "bench.svg").read_text())


def test_a_contestant_that_cannot_run_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, float]:
        raise Absent("needs node and npm")

    monkeypatch.setitem(CASES, "ordered", lambda *_: [Variant("GroupMQ", missing)])
    board = measure(None, TINY, ["ordered"], peers=True, say=lambda _: None, after=lambda *_: None)  # type: ignore[arg-type]
    assert board.row("ordered", "GroupMQ").failed == "not here: needs node and npm"
    assert "could not run here" in draw(board, "")


def test_a_message_that_runs_after_a_later_one_is_counted(tmp_path: Path) -> None:
    watch, record = Watch(tmp_path / "record"), Record(tmp_path / "record")
    for key, n in ((1, 0), (2, 0), (1, 2), (1, 1), (2, 1), (2, 1)):
        record.job(key, n)
    assert watch.jobs() == 6
    assert watch.violations() == 2


def test_keys_arrive_mixed_and_each_in_its_own_order() -> None:
    order = list(arrivals(10, 5))
    assert len(order) == 50 and [key for key, _ in order] != sorted(key for key, _ in order)
    assert all([n for key, n in order if key == chat] == list(range(5)) for chat in range(10))


def test_goals_are_judged_by_medians_and_what_was_not_measured_is_not_judged() -> None:
    board = a_board(Keyturn_redis=1000, GroupMQ=1500, saq=900, dramatiq=1100)
    board.row("ordered", "GroupMQ").samples += [{"rate": 1500.0}, {"rate": 9999.0}]
    judged = {item.goal.text: item for item in judge(board)}
    assert len(judged) == len(GOALS)
    assert judged["ordered: redis ÷ GroupMQ, empty turns"].holds is True
    assert judged["ordered: redis ÷ the fastest of those without order"].holds is False
    assert judged["ordered: redis ÷ arq with the recipe, its defaults"].holds is None

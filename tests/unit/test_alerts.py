"""Alerts, the Grafana dashboard and the pages that name metrics: every metric exists, every query can be read, and every alert
has an entry in the runbook. Where promtool is installed, every alert is also caused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]

from keyturn.metrics_page import PAGE, deployment_metrics, page, process_metrics
from tests.support.promtool import promtool

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
GRAFANA = ROOT / "deploy/grafana/keyturn.json"
RUNBOOK = ROOT / "deploy/RUNBOOK.md"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = orjson.loads(GRAFANA.read_bytes())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
GAUGES = {one.name for one in deployment_metrics()}
NAMES = GAUGES | {
    name
    for one in process_metrics()
    for name in (
        [f"{one.name}{end}" for end in ("_bucket", "_sum", "_count")] if one.kind == "histogram" else [one.name]
    )
}
_METRIC = re.compile(r"\b(?:keyturn|rq)_[a-z_]+\b(?!/)")
# Words that look like metrics and are none.
_OTHERS = {
    "keyturn_session",
    "keyturn_part",
    "rq_names",
    "rq_worker",
    "rq_enqueue",
    "rq_finish",
    "rq_commands",
    "rq_leftovers",
}


def queries() -> list[str]:
    shown = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return [rule["expr"] for rule in RULES] + [query.replace("$__rate_interval", "5m") for query in shown]


def test_the_page_of_metrics_is_as_the_metrics_are() -> None:
    assert PAGE.read_text() == page(), "the metrics changed: run ./run docs"


@pytest.mark.parametrize("query", queries())
def test_a_query_can_be_read_and_names_metrics_that_exist(query: str) -> None:
    promql_parser.parse(query)
    named = set(_METRIC.findall(query))
    assert named and named <= NAMES
    # Every receiver gives the same gauges: their sum would be a multiple of the truth.
    assert not re.search(rf"\b(?:sum|avg|count)\b[^(]*\((?:{'|'.join(GAUGES)})\b", query)


def test_every_metric_that_a_document_names_exists() -> None:
    documents = [ROOT / "README.md", ROOT / "SECURITY.md", RUNBOOK, *(ROOT / "docs").rglob("*.md")]
    histograms = {one.name for one in process_metrics() if one.kind == "histogram"}
    for path in documents:
        named = set(_METRIC.findall(path.read_text())) - _OTHERS
        assert named <= NAMES | histograms, path


def test_every_alert_says_what_is_wrong_and_has_an_entry_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.M)
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) >= 20
    for rule in RULES:
        assert re.fullmatch(r"Keyturn([A-Z][a-z]+)+", rule["alert"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"].endswith(".")
        place, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert place == "deploy/RUNBOOK.md" and anchor in [heading.lower() for heading in headings], rule["alert"]
    named = {rule["annotations"]["runbook"].partition("#")[2] for rule in RULES}
    assert {heading.lower() for heading in headings} == named  # and no entry for an alert that is gone


def test_every_panel_has_what_a_reader_needs() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"] and panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        ranges = [found for target in panel["targets"] for found in re.findall(r"\[([^\]]+)\]", target["expr"])]
        assert set(ranges) <= {"$__rate_interval"}  # follows the zoom


# What causes each alert, and a state close to it that does not: series as promtool writes them, one value a minute.
CAUSES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "KeyturnWaitingForWorker": (
        {'keyturn_ready_oldest_seconds{lane="turns",instance="a"}': "31x10"},
        {
            'keyturn_ready_oldest_seconds{lane="turns",instance="a"}': "20x10",
            'keyturn_ready_oldest_seconds{lane="turns",instance="b"}': "20x10",
        },
        "5m",
    ),
    "KeyturnNoWorkers": ({'keyturn_slots{lane="turns"}': "0x10"}, {'keyturn_slots{lane="turns"}': "200x10"}, "5m"),
    "KeyturnHousekeeperSilent": (
        {"keyturn_housekeeper_last_timestamp_seconds": "0x10"},
        {"keyturn_housekeeper_last_timestamp_seconds": "0+60x10"},
        "5m",
    ),
    "KeyturnDependencyDown": (
        {'keyturn_dependency_up{name="redis"}': "0x10"},
        {'keyturn_dependency_up{name="redis"}': "1x10"},
        "5m",
    ),
    "KeyturnTurnsFailing": (
        {'keyturn_turns_total{outcome="failed"}': "0+1x60", 'keyturn_turns_total{outcome="answered"}': "0+4x60"},
        {'keyturn_turns_total{outcome="failed"}': "0x60", 'keyturn_turns_total{outcome="answered"}': "0+4x60"},
        "60m",
    ),
    "KeyturnTurnsFailingSlowly": (
        {'keyturn_turns_total{outcome="dead"}': "0+1x360", 'keyturn_turns_total{outcome="answered"}': "0+10x360"},
        {'keyturn_turns_total{outcome="dead"}': "0+1x360", 'keyturn_turns_total{outcome="answered"}': "0+100x360"},
        "360m",
    ),
    "KeyturnDeliveriesStuck": (
        {'keyturn_delivery_oldest_seconds{platform="api"}': "121x20"},
        {'keyturn_delivery_oldest_seconds{platform="api"}': "60x20"},
        "10m",
    ),
    "KeyturnSaturated": (
        {'keyturn_slots_used{lane="turns"}': "190x20", 'keyturn_slots{lane="turns"}': "200x20"},
        {'keyturn_slots_used{lane="turns"}': "100x20", 'keyturn_slots{lane="turns"}': "200x20"},
        "15m",
    ),
    "KeyturnKeyStuck": (
        {
            'keyturn_wait_seconds_bucket{cause="key",le="300"}': "0+1x40",
            'keyturn_wait_seconds_bucket{cause="key",le="900"}': "0+9x40",
            'keyturn_wait_seconds_bucket{cause="key",le="+Inf"}': "0+9x40",
        },
        {
            'keyturn_wait_seconds_bucket{cause="key",le="300"}': "0+9x40",
            'keyturn_wait_seconds_bucket{cause="key",le="900"}': "0+9x40",
            'keyturn_wait_seconds_bucket{cause="key",le="+Inf"}': "0+9x40",
        },
        "35m",
    ),
    "KeyturnDeadLetters": (
        {'keyturn_dead_letter_total{reason="reply refused"}': "0x5 6x20"},  # a burst, and the first one ever
        {'keyturn_dead_letter_total{reason="error"}': "4x20"},
        "15m",
    ),
    "KeyturnAmbiguousSends": (
        {'keyturn_ambiguous_send_total{platform="api"}': "0+1x20"},
        {'keyturn_ambiguous_send_total{platform="api"}': "9x20"},
        "15m",
    ),
    "KeyturnFenceRejected": (
        {"keyturn_fence_rejected_total": "0+1x20"},
        {"keyturn_fence_rejected_total": "9x20"},
        "15m",
    ),
    "KeyturnLeaseLost": ({"keyturn_lease_lost_total": "0+1x20"}, {"keyturn_lease_lost_total": "9x20"}, "15m"),
    "KeyturnForgedJob": ({"keyturn_forged_job_total": "0 0 0 1 1 1"}, {"keyturn_forged_job_total": "0x9"}, "4m"),
    "KeyturnLoopErrors": (
        {'keyturn_loop_errors_total{loop="beat"}': "_x16 1x10"},
        {'keyturn_loop_errors_total{loop="beat"}': "3x40"},
        "20m",
    ),
    "KeyturnDedupConflict": (
        {'keyturn_dedup_conflict_total{platform="api"}': "0 0 0 1 1 1"},
        {'keyturn_dedup_conflict_total{platform="api"}': "0x9"},
        "5m",
    ),
    "KeyturnOldWorker": (
        {'keyturn_newer_mail_total{lane="turns"}': "0+1x60"},
        {'keyturn_newer_mail_total{lane="turns"}': "5x60"},
        "50m",
    ),
    "KeyturnSchedulesMissed": (
        {'keyturn_schedule_slots_total{state="missed"}': "0 0 1 1 1 1"},
        {'keyturn_schedule_slots_total{state="missed"}': "0x9", 'keyturn_schedule_slots_total{state="fired"}': "0+1x9"},
        "5m",
    ),
    "KeyturnPausedLong": ({'keyturn_paused{scope="rq"}': "1x70"}, {'keyturn_paused{scope="rq"}': "0x70"}, "65m"),
    "KeyturnSyntheticLate": (
        {"keyturn_synthetic_last_timestamp_seconds": "0x10", "keyturn_synthetic_seconds": "1x10"},
        {"keyturn_synthetic_last_timestamp_seconds": "0+60x10", "keyturn_synthetic_seconds": "1x10"},
        "7m",
    ),
    "KeyturnGaugesIncomplete": (
        {'keyturn_collect_errors_total{store="redis"}': "0+1x20"},
        {'keyturn_collect_errors_total{store="redis"}': "0x20"},
        "15m",
    ),
    "KeyturnMetricsGone": ({"up": "1x9"}, {'keyturn_dependency_up{name="redis"}': "0x9"}, "6m"),
    "KeyturnProcessMetricsGone": (
        {  # a receiver has the counters of workers too
            'keyturn_turns_total{outcome="failed",instance="receiver"}': "0x9",
            'keyturn_process_info{kind="housekeeper"}': "1x9",
        },
        {'keyturn_process_info{kind="housekeeper"}': "1x9", 'keyturn_process_info{kind="worker"}': "1x9"},
        "6m",
    ),
}


def test_every_alert_comes_from_its_cause_and_from_nothing_close_to_it(tmp_path: Path) -> None:
    assert CAUSES.keys() == {rule["alert"] for rule in RULES}
    tests = []
    for rule in RULES:
        causing, quiet, at = CAUSES[rule["alert"]]
        expression = f"count({rule['expr']})"
        tests.append(one_test(causing, expression, at, [{"labels": "{}", "value": 1}]))
        tests.append(one_test(quiet, expression, at, []))
    written = tmp_path / "test.yaml"
    written.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    for command in (["check", "rules", str(ALERTS)], ["test", "rules", str(written)]):
        promtool(*command)


HELD = {  # while somebody holds work back on purpose, nobody is paged
    "KeyturnDeliveriesStuck": {'keyturn_paused{scope="rq"}': "1x90"},
    "KeyturnSyntheticLate": {"keyturn_synthetic_held": "1x90"},
}


def test_a_pause_does_not_page_and_one_that_is_forgotten_makes_a_ticket(tmp_path: Path) -> None:
    """Of the replies that a pause holds, the gauge itself knows."""
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    assert severity["KeyturnPausedLong"] == "ticket"
    [long] = [rule for rule in RULES if rule["alert"] == "KeyturnPausedLong"]
    tests = []
    for rule in RULES:
        if rule["alert"] in HELD:
            causing, _, at = CAUSES[rule["alert"]]
            expression = f"count({rule['expr']})"
            tests.append(one_test({**causing, **HELD[rule["alert"]]}, expression, at, []))
            over = {name: values.replace("1x", "0x") for name, values in HELD[rule["alert"]].items()}
            tests.append(one_test({**causing, **over}, expression, at, [{"labels": "{}", "value": 1}]))
    for scope in ("rq", "all", "lane", "platform", "chat", "conversation"):
        forgotten = {f'keyturn_paused{{scope="{scope}"}}': "1x90"}
        tests.append(one_test(forgotten, f"count({long['expr']})", "65m", [{"labels": "{}", "value": 1}]))
    written = tmp_path / "test.yaml"
    written.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(written))


def one_test(series: dict[str, str], expression: str, at: str, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": at, "exp_samples": expected}],
    }

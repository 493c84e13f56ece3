"""docs/metrics.md, written from the metrics themselves by `./run docs`. A test keeps the page true."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from shared import metrics
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.reading.gauges import DeploymentNow, render_gauges
from shared.reading.overview import BoundedCount, LaneNow, Overview, StoredNow
from shared.reading.signs import LastSynthetic, ServerSigns
from shared.settings import Settings
from shared.settings.watching import SyntheticBlock
from shared.store.usage import SpentInAll
from shared.value import value

PAGE = Path(__file__).parents[1] / "docs/metrics.md"
_HEAD = """# Metrics

`./run docs` writes this page from the metrics themselves. `GET /metrics` of a receiver speaks Prometheus' text form; workers,
housekeepers, listeners and dashboards serve theirs on `METRICS__PORT`. Alerts: [deploy/prometheus/alerts.yaml](../deploy/prometheus/alerts.yaml),
each with an entry in the [runbook](../deploy/RUNBOOK.md). A dashboard for Grafana:
[deploy/grafana/keyturn.json](../deploy/grafana/keyturn.json).
"""
_GAUGES = """## Of the whole deployment

Receivers read these from the stores when they are asked, so every receiver gives the same numbers: take `max`, never `sum`. A
number that cannot be read is left out. Counts stop at 10,000, and all who ask within a second share one answer.
"""
_COUNTERS = """## Of one process

Add these up over processes. Under `keyturn up`, the receiver gives the sum of all its processes.
"""


@value
class KnownMetric:
    """A metric as its page shows it. `name` is as queries write it; a histogram has _bucket, _sum and _count behind it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def deployment_metrics() -> list[KnownMetric]:
    """The gauges that receivers read from the stores."""
    text = render_gauges(_some_deployment(), Settings.model_construct(synthetic=SyntheticBlock(seconds=1)))
    families = text_string_to_metric_families(text.decode())
    found = [
        KnownMetric(family.name, family.type, tuple(family.samples[0].labels), family.documentation)
        for family in families
    ]
    return sorted(found, key=lambda one: one.name)


def process_metrics() -> list[KnownMetric]:
    """What each process counts and times by itself."""
    return sorted(_of_process(), key=lambda one: one.name)


def _of_process() -> Iterator[KnownMetric]:
    suffixes = {Counter: "_total", Gauge: "", Histogram: ""}
    for collector in vars(metrics).values():
        if isinstance(collector, Counter | Gauge | Histogram) and not collector._labelvalues:
            name = f"{collector._name}{suffixes[type(collector)]}"
            yield KnownMetric(name, str(collector._type), tuple(collector._labelnames), collector._documentation)


def page() -> str:
    """The whole page."""
    parts = [_HEAD, _GAUGES, _table(deployment_metrics()), _COUNTERS, _table(process_metrics())]
    return "\n".join(parts)


def _table(found: list[KnownMetric]) -> str:
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels) or '–'} | {one.meaning} |"
        for one in found
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows, ""])


def _some_deployment() -> DeploymentNow:
    """One in which every gauge has a series."""
    at, none = datetime.now(UTC), BoundedCount(0)
    lanes = tuple(LaneNow(name, 0, None, 0, 0) for name in (TURNS, DELIVERIES, CONTROL))
    seen = Overview(at, lanes, (), 0, 0, StoredNow(none, none, none, 0, SpentInAll()))
    return DeploymentNow(seen, {"any": at}, (ServerSigns(False, at, LastSynthetic(at, 1.0)),), (True,))


if __name__ == "__main__":
    PAGE.write_text(page())

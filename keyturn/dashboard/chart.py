"""Small charts as SVG: attributes only, because the content security policy allows no inline style."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shared.reading.stage_times import StageTimes
from shared.value import value

WIDTH, HEIGHT = 240, 44
BAR_WIDTH = 1000


@value
class Chart:
    """A line over the last hour, with the words that stand for it."""

    points: str  # of a polyline, in a box of WIDTH × HEIGHT
    area: str  # the same, closed along the bottom
    highest: float
    title: str


def chart(values: Sequence[float | None], title: str) -> Chart | None:
    """A chart of at least two known values; None before there are any. Where nobody could tell, the line goes straight on."""
    known = [(n, value) for n, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    highest = max(value for _, value in known)
    scale = highest or 1.0
    step = WIDTH / (len(values) - 1)
    at = [(n * step, HEIGHT - 2 - value / scale * (HEIGHT - 6)) for n, value in known]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    area = f"{at[0][0]:g},{HEIGHT} {points} {at[-1][0]:g},{HEIGHT}"
    now = f"{values[-1]:g}" if values[-1] is not None else "not known"
    return Chart(points, area, highest, f"{title}: now {now}, at most {highest:g}")


@value
class StageBar:
    """How long a stage takes, as a bar in thousandths of the width: half of the messages end within `middle`, 95 % within
    `slow`."""

    stage: StageTimes
    middle: int
    slow: int


def stage_bars(stages: Sequence[StageTimes]) -> list[StageBar]:
    """A bar for each stage. The scale is logarithmic, from a millisecond to the slowest: agents take seconds, the rest does not."""
    slowest = max((stage.p95_ms for stage in stages), default=0)
    whole = math.log10(max(10, slowest))

    def width(ms: int) -> int:
        return max(4, round(math.log10(max(1, ms)) / whole * BAR_WIDTH))

    return [StageBar(stage, width(stage.p50_ms), width(stage.p95_ms)) for stage in stages]

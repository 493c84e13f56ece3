"""How long the stages of a message's path take: the middle and the slow end, of the messages that were answered last.

Read from the times that the database has of each message, so it counts for the whole deployment, whoever served it. The
histograms of `/metrics` have the stages that take no row: accept, fetch, acknowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from shared.clock import now_ms
from shared.store import Store
from shared.store.database import Row
from shared.synthetic import is_synthetic
from shared.value import value

MESSAGES = 500  # that are looked at, at the most
LATELY = timedelta(hours=1)
WHOLE = "in all"
# Each stage: its name, from when to when, and what passes in it.
_STAGES = (
    ("wait", "received_at", "claimed_at", "from its receipt until a worker takes it"),
    ("load", "claimed_at", "started_at", "its session and history are read"),
    ("agent", "started_at", "committed_at", "the agent answers, and the answer is committed"),
    ("outbox", "committed_at", "sending_at", "the reply waits to be sent"),
    ("send", "sending_at", "sent_at", "the platform takes the reply"),
    (WHOLE, "received_at", "sent_at", "from its receipt until the last part is sent"),
)


@value
class StageTimes:
    """How long a stage took for half of the messages, and for all but one in twenty. `messages` have passed it."""

    stage: str
    means: str
    messages: int
    p50_ms: int
    p95_ms: int


async def stage_times(store: Store) -> tuple[StageTimes, ...]:
    """The stages of the last MESSAGES messages within the last hour, in the order of the path; those that none has passed are
    left out. Costs the same however many messages there are."""
    rows = await store.overview.stage_moments(now_ms() - int(LATELY.total_seconds() * 1000), MESSAGES)
    rows = [row for row in rows if not is_synthetic(row["session_key"])]
    found = []
    for name, begin, end, means in _STAGES:
        spans = sorted(_spans(rows, begin, end))
        if spans:
            found.append(StageTimes(name, means, len(spans), _at(spans, 50), _at(spans, 95)))
    return tuple(found)


def _spans(rows: Sequence[Row], begin: str, end: str) -> list[int]:
    """Clocks of two machines may differ by a little: no stage takes less than nothing."""
    return [max(0, row[end] - row[begin]) for row in rows if row[begin] is not None and row[end] is not None]


def _at(spans: Sequence[int], percent: int) -> int:
    """The smallest of the sorted spans that so many percent of them do not exceed."""
    return spans[max(0, -(-len(spans) * percent // 100) - 1)]

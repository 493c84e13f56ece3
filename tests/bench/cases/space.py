"""Space: how much database a thousand messages with their answers take, before and after the time of retention.

tests/bench/talk.py says what kind of messages these are. Everything is answered, sent and indexed for search, and nothing
waits. After retention, what stays is the transcripts, the search index and one small journal row per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from shared.store import open_store
from tests.bench.board import Sample, Variant
from tests.bench.cases.search import KINDS
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.program import LIMIT_SECONDS, measured
from tests.bench.sizes import Sizes
from tests.bench.space import bytes_of_transcripts, bytes_on_disk, bytes_used
from tests.bench.talk import Talk, hold

PRUNING_SECONDS = 0.02  # at most, for each message: a housekeeper rests most of the time


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, kind, sizes.talked)) for name, kind in KINDS.items()]


def _measure(ground: Ground, kind: str, messages: int) -> Sample:
    ground.fresh_redis()
    url, thousands = ground.fresh_database(kind), messages / 1000
    asyncio.run(filled(url, messages))
    before, disk_before = bytes_used(url), bytes_on_disk(url)
    pruned(Deployment(ground, url).environment(), messages)
    found = {
        "before_mb": before / 1e6 / thousands,
        "disk_before_mb": disk_before / 1e6 / thousands,
        "after_mb": bytes_used(url) / 1e6 / thousands,
        "transcripts_mb": bytes_of_transcripts(url) / 1e6 / thousands,
        "disk_mb": bytes_on_disk(url) / 1e6 / thousands,
    }
    ground.drop_database(url)
    return found


async def filled(url: str, messages: int) -> None:
    """Let so many messages be said, answered, sent and indexed."""
    store = await open_store(url, 10)
    try:
        await hold(store, Talk(), messages)
    finally:
        await store.database.close()


def pruned(environment: Mapping[str, str], messages: int) -> Sample:
    """Let a housekeeper remove what is too old of so many messages."""
    limit_seconds = max(LIMIT_SECONDS, PRUNING_SECONDS * messages)
    return measured("tests.bench.pruning", (), environment, limit_seconds)

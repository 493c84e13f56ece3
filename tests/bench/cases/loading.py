"""Loading: what opening a turn costs after a long past, and touching a session among very many, on both databases.

`load` is what a turn reads: session, window, facts. `touch` is that and the commit of a turn. Each figure is the median of
single calls, one after another, so that what else the machine does weighs little.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from shared.clock import now_ms
from shared.ids import fresh_id
from shared.messages import Entry, Mail
from shared.store import Store, open_store
from shared.store.change import Commit, Proof
from shared.store.database.statements import Statement, Step
from tests.bench.agent import ANSWER
from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import an_inbound
from tests.bench.past import TEXT, key_of
from tests.bench.sizes import Sizes

KINDS = {"SQLite": "sqlite", "PostgreSQL": "postgres"}
WINDOW = 120  # the default
SERIES = {
    "sqlite": "(WITH RECURSIVE s(x) AS (SELECT {a} UNION ALL SELECT x + 1 FROM s WHERE x < {b}) SELECT x FROM s) AS {name}",
    "postgres": "generate_series({a}, {b}) AS {name}(x)",
}
FILL = (
    "INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)"
    " SELECT 'agent:main:webhook:dm:c' || k.x, 'ses_' || k.x, 0, 0, 1 FROM {keys}",
    "INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at)"
    " SELECT 'ses_' || k.x, 'agent:main:webhook:dm:c' || k.x, 1, 'past', {messages}, 1, 1 FROM {keys}",
    "INSERT INTO messages (session_id, n, turn_id, role, text, data, created_at)"
    " SELECT 'ses_' || k.x, n.x, 'past', 'user', '{text}', '{{}}', 1 FROM {keys}, {numbers}",
)


class Shelves:
    """The databases, one per kind, made when first asked for and then kept."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._urls: dict[tuple[str, int], str] = {}

    def url(self, kind: str, sessions: int, messages: int) -> str:
        """Keys 0, 1, 2 … with so many messages each."""
        if (kind, sessions) not in self._urls:
            url = self._ground.fresh_database(kind)
            asyncio.run(_fill(url, kind, [(0, sessions, messages)]))
            self._urls[kind, sessions] = url
        return self._urls[kind, sessions]

    def long_and_short(self, kind: str, lengths: Sequence[int]) -> str:
        """Key 0 with the first length, key 1 with the second."""
        if (kind, 0) not in self._urls:
            url = self._ground.fresh_database(kind)
            asyncio.run(_fill(url, kind, [(n, 1, length) for n, length in enumerate(lengths)]))
            self._urls[kind, 0] = url
        return self._urls[kind, 0]


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    shelves = Shelves(ground)
    lengths = [
        Variant(f"load, {name}, {length:,} messages", partial(_loads, shelves, kind, sizes, n))
        for name, kind in KINDS.items()
        for n, length in enumerate(sizes.lengths)
    ]
    crowds = [
        Variant(f"touch, {name}, {crowd:,} sessions", partial(_touches, shelves, kind, sizes, crowd))
        for name, kind in KINDS.items()
        for crowd in sizes.crowds
    ]
    return lengths + crowds


def _loads(shelves: Shelves, kind: str, sizes: Sizes, key: int) -> Sample:
    url = shelves.long_and_short(kind, sizes.lengths)
    return asyncio.run(_measured(url, [key] * sizes.turns, commit=False))


def _touches(shelves: Shelves, kind: str, sizes: Sizes, crowd: int) -> Sample:
    chance = random.Random(crowd)
    keys = [chance.randrange(crowd) for _ in range(sizes.turns)]
    return asyncio.run(_measured(shelves.url(kind, crowd, 2), keys, commit=True))


async def _measured(url: str, keys: Sequence[int], *, commit: bool) -> Sample:
    store = await open_store(url, WINDOW)
    try:
        await store.transcript.load(key_of(keys[0]), "")
        times = sorted([await _timed(store, key, commit) for key in keys])
    finally:
        await store.database.close()
    return {"p50_ms": times[len(times) // 2], "p99_ms": times[int(len(times) * 0.99)]}


async def _timed(store: Store, key: int, commit: bool) -> float:
    inbound = an_inbound(key, 0)
    begun = time.perf_counter()
    session, _ = await store.transcript.load(key_of(key), inbound.id)
    if commit:
        entries = (Entry("user", inbound.text, inbound.id), *ANSWER.entries)
        proof = Proof(f"turn_{fresh_id()}", "bench", 1, now_ms(), now_ms())
        mail = (Mail(session.done_seq + 1, inbound, journaled=False),)
        await store.commit(Commit(session, key_of(key), proof, mail, entries, ANSWER.replies))
    return 1000 * (time.perf_counter() - begun)


async def _fill(url: str, kind: str, ranges: Sequence[tuple[int, int, int]]) -> None:
    store = await open_store(url, WINDOW)
    try:
        for first, sessions, messages in ranges:
            keys = SERIES[kind].format(a=first, b=first + sessions - 1, name="k")
            numbers = SERIES[kind].format(a=1, b=messages, name="n")
            for text in FILL:
                await _run(store, text.format(keys=keys, numbers=numbers, messages=messages, text=TEXT))
        await _run(store, "ANALYZE")  # as PostgreSQL does by itself after a while
    finally:
        await store.database.close()


async def _run(store: Store, sql: str) -> None:
    await store.database.write(Step(Statement("fill", sql, sql, None), {}))

"""Search: how long an answer takes among so many messages, for who said half of them and for one of many.

Common and rare words, parts of words, two words, one, two and four characters of Chinese, and what nobody said. The index
is made by the housekeeper's own hand first; what that costs per message is shown beside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial

from shared.store import Store, open_store
from shared.store.database.statements import Statement, Step
from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.library import HEAVY, Language, fill, light_owner
from tests.bench.sizes import Sizes

KINDS = {"SQLite": "sqlite", "PostgreSQL": "postgres"}
REPEAT = 3


class Libraries:
    """One per database, made when first asked for and then kept: a million messages take a minute or two."""

    def __init__(self, ground: Ground, messages: int) -> None:
        self.ground = ground
        self.messages = messages
        self.language = Language.made_up()
        self.index_ms: dict[str, float] = {}
        self._urls: dict[str, str] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            url = self.ground.fresh_database(kind)
            fill(url, self.language, self.messages)
            begun = time.perf_counter()
            asyncio.run(_index(url))
            self.index_ms[kind] = 1000 * (time.perf_counter() - begun) / self.messages
            self._urls[kind] = url
        return self._urls[kind]


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    libraries = Libraries(ground, sizes.searched)
    owners = {"who said half": HEAVY, "one of many": light_owner(0)}
    return [
        Variant(f"{name}, {who}", partial(_measure, libraries, kind, owner))
        for name, kind in KINDS.items()
        for who, owner in owners.items()
    ]


def _measure(libraries: Libraries, kind: str, owner: str) -> Sample:
    url = libraries.url(kind)
    times = sorted(asyncio.run(_searches(url, list(_questions(libraries.language)), owner)))
    return {
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[int(len(times) * 0.99)],
        "max_ms": times[-1],
        "index_ms": libraries.index_ms[kind],
    }


def _questions(language: Language) -> Iterator[str]:
    for rank in (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, len(language.words) - 1):
        word = language.words[min(rank, len(language.words) - 1)]
        yield word
        yield word[1:] if len(word) > 3 else word
        yield f"{word} {language.words[5]}"
    for rank in (0, 5, 50, 500, 2500):
        first, second, *more = language.characters[rank : rank + 4]
        yield from (first, first + second, first + second + "".join(more))
    yield from ("xylophone", "qqq", "鰻鱺", f'"{language.words[0]} {language.words[1]}"')


async def _searches(url: str, questions: list[str], owner: str) -> list[float]:
    store = await open_store(url, 10)
    try:
        await store.search.find("warm up", owner)
        return [await _timed(store, words, owner) for _ in range(REPEAT) for words in questions]
    finally:
        await store.database.close()


async def _timed(store: Store, words: str, owner: str) -> float:
    begun = time.perf_counter()
    await store.search.find(words, owner)
    return 1000 * (time.perf_counter() - begun)


async def _index(url: str) -> None:
    store = await open_store(url, 10)
    try:
        while await store.search.index():
            pass
        analyse = "ANALYZE"  # as PostgreSQL does by itself after a while
        await store.database.write(Step(Statement("analyse", analyse, analyse, None), {}))
    finally:
        await store.database.close()

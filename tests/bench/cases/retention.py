"""Retention: what turns notice while a month's plumbing is removed, and what is left then.

Many messages are said, answered, sent and indexed. A housekeeper whose clock is 30 days ahead removes what is too old, in a
process of its own, while conversations go on here. `alone` are the same turns without it: on a busy machine, only the
difference counts. Then a part of the messages comes again: `answered_twice` counts those that were not known.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter

from shared.mail import encode_mail
from shared.session_key import SessionKey
from shared.store import Store, open_store
from tests.bench.board import Sample, Variant
from tests.bench.cases.search import KINDS
from tests.bench.cases.space import filled, pruned
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.sizes import Sizes
from tests.bench.space import bytes_of_transcripts, bytes_on_disk, bytes_used
from tests.bench.talk import MAILBOX, Exchange, Talk, take_turn

ALONE = 200  # turns without pruning
EVERY_SECONDS = 0.02  # a turn begins
REDELIVERED_EVERY = 50


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, kind, sizes.talked)) for name, kind in KINDS.items()]


def _measure(ground: Ground, kind: str, messages: int) -> Sample:
    ground.fresh_redis()
    url = ground.fresh_database(kind)
    asyncio.run(filled(url, messages))
    environment = Deployment(ground, url).environment()
    with ThreadPoolExecutor(1) as beside:
        alone = asyncio.run(_turns(url, messages, None))
        pruning = beside.submit(pruned, environment, messages)
        during = asyncio.run(_turns(url, messages + ALONE, pruning))
    pruned(environment, messages)  # the records of these turns
    twice = asyncio.run(_answered_twice(url, messages))
    ours, own = bytes_used(url), bytes_of_transcripts(url)
    disk = bytes_on_disk(url)
    ground.drop_database(url)
    return {
        **pruning.result(),
        "turns": len(during),
        "p50_ms": _part(during, 0.5),
        "p99_ms": _part(during, 0.99),
        "max_ms": during[-1],
        "alone_p99_ms": _part(alone, 0.99),
        "alone_max_ms": alone[-1],
        "answered_twice": twice,
        "transcripts": ours / own,
        "disk": disk / own,
    }


def _part(times: list[float], share: float) -> float:
    return times[int(len(times) * share)]


async def _turns(url: str, first: int, until: Future[Sample] | None) -> list[float]:
    """Turns of new conversations, one after another at a steady pace, as long as `until` is not done: their times, sorted."""
    store = await open_store(url, 10)
    exchange, times = next(iter(Talk().conversations(1)))[0], list[float]()
    try:
        while len(times) < ALONE or (until is not None and not until.done()):
            begun = perf_counter()
            await take_turn(store, exchange.elsewhere(first + len(times)))
            times.append(1000 * (perf_counter() - begun))
            await asyncio.sleep(EVERY_SECONDS)
    finally:
        await store.database.close()
    return sorted(times)


async def _answered_twice(url: str, messages: int) -> int:
    """Deliver every fiftieth message again: how many of them are taken for new."""
    store = await open_store(url, 10)
    exchanges = [one for conversation in Talk().conversations(messages) for one in conversation]
    try:
        return sum([await _is_taken(store, exchange) for exchange in exchanges[::REDELIVERED_EVERY]])
    finally:
        await store.database.close()


async def _is_taken(store: Store, exchange: Exchange) -> bool:
    inbound = exchange.inbound()
    key = str(SessionKey.for_source(inbound.source))
    return (await store.journal.accept(inbound, encode_mail(inbound), key, MAILBOX)).fresh

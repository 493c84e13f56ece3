"""The writing of turns alone: `python -m tests.bench.persisting KEYS TURNS`, on the database that the settings name.

Load the session with its window and commit the turn, as a worker does, with neither queue nor agent around it: what
compares with the older gateways' saving like for like.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from shared import log, settings
from shared.clock import now_ms
from shared.ids import fresh_id
from shared.messages import Entry, Mail
from shared.pipeline import open_pipeline
from shared.store import Store
from shared.store.change import Ending, Proof
from tests.bench.agent import ANSWER
from tests.bench.board import Sample
from tests.bench.keyturn import an_inbound
from tests.bench.past import key_of
from tests.bench.program import Meter


async def measure(keys: int, turns: int) -> Sample:
    """Keys at once, each one's turns one after another."""
    log.setup("warning", "bench")
    per_key = max(turns // keys, 1)
    async with open_pipeline(settings.load()) as pipe:
        await pipe.store.transcript.load(key_of(0), "")  # threads and connections
        meter = Meter(pipe)
        await meter.start()
        await asyncio.gather(*(_converse(pipe.store, key, per_key) for key in range(keys)))
        figures = await meter.figures(keys * per_key)
    return {"cpu_ms": figures["cpu_ms"], "ms": 1000 * figures["seconds"] / (keys * per_key)}


async def _converse(store: Store, key: int, turns: int) -> None:
    for n in range(turns):
        inbound = an_inbound(key, n)
        session, _ = await store.transcript.load(key_of(key), inbound.id)
        entries = (Entry("user", inbound.text, inbound.id), *ANSWER.entries)
        proof = Proof(f"turn_{fresh_id()}", "bench", 1, now_ms(), now_ms())
        mail = (Mail(session.done_seq + 1, inbound),)
        await store.commit(session, key_of(key), mail, entries, ANSWER.replies, Ending(), proof)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(int(sys.argv[1]), int(sys.argv[2])))))

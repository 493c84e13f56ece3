"""The writing of turns alone: `python -m tests.bench.persisting KEYS TURNS`, on the database that the settings name.

Load the session with its window and commit the turn, as a worker does, with neither queue nor agent around it: what
compares with the older gateways' saving like for like.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

import uvloop

from shared import log, settings
from shared.clock import now_ms
from shared.ids import fresh_id
from shared.mail import encode_mail
from shared.messages import Entry, Mail
from shared.pipeline import open_pipeline
from shared.store import Store
from shared.store.change import Commit, Proof
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
        waiting = [await _journaled(pipe.store, key, per_key) for key in range(keys)]
        meter = Meter(pipe)
        await meter.start()
        await asyncio.gather(*(_converse(pipe.store, key, mail) for key, mail in enumerate(waiting)))
        figures = await meter.figures(keys * per_key)
    return {"cpu_ms": figures["cpu_ms"], "ms": 1000 * figures["seconds"] / (keys * per_key)}


async def _journaled(store: Store, key: int, turns: int) -> list[Mail]:
    """What is to be answered. Accepting it is the receiver's work, so it is done before the clock starts."""
    mail = []
    for n in range(turns):
        inbound = an_inbound(key, n)
        accepted = await store.journal.accept(inbound, encode_mail(inbound), key_of(key), turns)
        mail.append(Mail(accepted.seq, inbound))
    return mail


async def _converse(store: Store, key: int, mail: Sequence[Mail]) -> None:
    for letter in mail:
        inbound = letter.inbound
        session, _ = await store.transcript.load(key_of(key), inbound.id)
        entries = (Entry("user", inbound.text, inbound.id), *ANSWER.entries)
        proof = Proof(f"turn_{fresh_id()}", "bench", 1, now_ms(), now_ms())
        await store.commit(Commit(session, key_of(key), proof, (letter,), entries, ANSWER.replies))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(int(sys.argv[1]), int(sys.argv[2])))))

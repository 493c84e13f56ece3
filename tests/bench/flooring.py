"""The least that the same calls could cost: `python -m tests.bench.flooring MESSAGES TRIPS COMMITS`.

Per message so many calls of an empty script and so many one-row transactions, through the drivers that the pipeline uses,
with as many messages at once, and nothing around it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from hashlib import sha1

import uvloop

from shared import log, settings
from shared.clock import now_ms
from shared.interpreter import share_with_threads
from shared.pipeline import open_pipeline
from shared.redis_servers import Script
from shared.store.database.statements import STATEMENTS, Step
from tests.bench.board import Sample
from tests.bench.program import Meter

AT_ONCE = 200
_SOURCE = "return 1"
EMPTY = Script("empty", _SOURCE, sha1(_SOURCE.encode(), usedforsecurity=False).hexdigest())
SET_ASIDE = STATEMENTS["set_aside"]
ROW = {"kind": "bench", "session_key": None, "reason": "", "detail": "", "payload": "", "attempts": 0, "once": None}


async def measure(messages: int, trips: int, commits: int) -> Sample:
    log.setup("warning", "bench")
    async with open_pipeline(settings.load()) as pipe:
        server, database = pipe.servers.all[0], pipe.store.database

        async def go_through(coming: list[int]) -> None:
            while coming:
                n = coming.pop()
                for _ in range(trips):
                    await server.call(EMPTY, ["kt:bench"], [])  # its rights are looked at by its key
                for _ in range(commits):
                    await database.write(Step(SET_ASIDE, {"ref": str(n), "now": now_ms(), **ROW}))

        await go_through([0])  # connections and scripts
        meter = Meter(pipe)
        await meter.start()
        left = list(range(messages))
        await asyncio.gather(*(go_through(left) for _ in range(AT_ONCE)))
        return await meter.figures(messages)


if __name__ == "__main__":
    share_with_threads()
    print(json.dumps(uvloop.run(measure(*map(int, sys.argv[1:4])))))

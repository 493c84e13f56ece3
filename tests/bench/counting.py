"""What one message costs Redis and the database: `python -m tests.bench.counting MESSAGES`, with the agent that the settings name.

One message after another is accepted and answered in this process, with nothing beside it, so the counts are exact. Deliveries
are left waiting.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import uvloop

from shared import log, settings
from shared.door import accept
from shared.pipeline import Pipeline, open_pipeline
from tests.bench.board import Sample
from tests.bench.keyturn import an_inbound
from tests.bench.past import key_of
from tests.support.pipe import Rig
from workers.agents.resolve import resolve
from workers.process.parts import open_parts
from workers.turn.take import take_turns

WARM_UP = 2  # messages: connections, scripts, the session's first row


class Statements:
    """Counts what a database is asked, from now on."""

    def __init__(self, database: Any) -> None:
        self.reads = self.writes = self.commits = 0
        database.read = self._counted(database.read, "reads")
        database.write = self._counted(database.write, "writes")

    def _counted(self, original: Callable[..., Awaitable[Any]], kind: str) -> Callable[..., Awaitable[Any]]:
        async def counted(*steps: Any, **options: Any) -> Any:
            setattr(self, kind, getattr(self, kind) + len(steps))
            self.commits += kind == "writes"
            return await original(*steps, **options)

        return counted


async def measure(messages: int) -> Sample:
    config = settings.load()
    log.setup("warning", "bench")
    async with open_pipeline(config) as pipe, open_parts(pipe, resolve(config.agent, config), "bench") as parts:
        statements, rig, counts = Statements(pipe.store.database), Rig(pipe), []
        for n in range(WARM_UP + messages + 1):  # each count begins where the one before ended
            await accept(pipe, an_inbound(0, n))
            await take_turns(await rig.lease(key_of(0)), parts.runner)
            counts.append((await _reads(pipe), statements.reads, statements.writes, statements.commits))
    each = [[now - before for now, before in zip(*pair, strict=True)] for pair in zip(counts[1:], counts, strict=False)]
    trips, reads, writes, commits = (float(median(found)) for found in zip(*each[WARM_UP:], strict=True))
    found = {
        "message_trips": trips - 1,
        "statements": reads + writes,
        "commits": commits,
    }  # one trip is the look itself
    return {**found, "sql_reads": reads}


async def _reads(pipe: Pipeline) -> int:
    return int((await pipe.servers.all[0].client.info("stats"))["total_reads_processed"])


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(int(sys.argv[1])))))

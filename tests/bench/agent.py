"""The agent that Keyturn's workers run under measurement: it notes its turn and answers with one short reply, or with
nothing, as the empty job of a peer does. An answer is a transcript row, an outbox row and a wake for delivery more.
"""

from __future__ import annotations

import asyncio
import os

from shared.agent.turn import Result, Turn
from shared.messages import Entry, Reply
from tests.bench.record import Record

SLEEP_VARIABLE = "BENCH_TURN_SECONDS"
SPREAD_VARIABLE = "BENCH_TURN_SPREAD"  # turns take up to so many seconds longer, each key's its own
GOLDEN = 0.618034  # multiples of it, without their whole part, lie evenly between 0 and 1
SILENT_VARIABLE = "BENCH_SILENT"
ANSWER = Result((Entry("assistant", "ok"),), (Reply("ok"),))


class RecordingAgent:
    """KEYTURN_AGENT=tests.bench.agent:RecordingAgent."""

    def __init__(self) -> None:
        self._seconds = float(os.environ.get(SLEEP_VARIABLE, "0"))
        self._spread = float(os.environ.get(SPREAD_VARIABLE, "0"))
        self._answer = Result() if os.environ.get(SILENT_VARIABLE) == "1" else ANSWER
        self._record = Record.from_environment()

    async def run(self, turn: Turn) -> Result:
        key = int(turn.session_key.rpartition(":c")[2])
        if self._seconds:
            await asyncio.sleep(self._seconds + self._spread * (key * GOLDEN % 1))
        self._record.job(key, int(turn.mail[0].text))
        return self._answer

"""Questions that no turn asks: for titles, summaries, and what is worth remembering. Each is counted as its session's."""

from __future__ import annotations

from collections.abc import Sequence

from shared.clock import now_ms
from shared.messages import Entry
from shared.pipeline import Pipeline
from shared.store.usage import Whose
from workers.agent import Answer, Asks
from workers.budget import day_at


async def ask_aside(pipe: Pipeline, asks: Asks, rows: Sequence[Entry], prompt: str, whose: Whose) -> Answer:
    answer = await asks.ask(rows, prompt)
    await pipe.store.usage.aside(answer.usage, whose, day_at(now_ms(), pipe.settings))
    return answer

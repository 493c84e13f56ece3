"""Questions that no turn asks: for titles, summaries, and what is worth remembering. Each is counted as its session's,
and none is asked beyond the budget."""

from __future__ import annotations

from collections.abc import Sequence

from shared.clock import now_ms
from shared.errors import PipelineError
from shared.messages import Entry
from shared.pipeline import Pipeline
from shared.store.usage import Whose
from workers.agents.capabilities import Answer, Asks
from workers.side.budget import Budgets, day_at


class OverBudget(PipelineError):
    """It was not asked: the budget is used up. The text is for the chat."""


async def ask_aside(
    pipe: Pipeline, asks: Asks, rows: Sequence[Entry], prompt: str, whose: Whose, budgets: Budgets | None
) -> Answer:
    """Ask, and count what it cost. OverBudget where nothing may be spent any more; raises what the model raises."""
    if budgets is not None and (refusal := await budgets.refusal(whose.owner)) is not None:
        raise OverBudget(refusal)
    answer = await asks.ask(rows, prompt)
    await pipe.store.usage.aside(answer.usage, whose, day_at(now_ms(), pipe.settings))
    return answer

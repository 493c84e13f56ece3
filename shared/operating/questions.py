"""Questions to people: an operator may withdraw one. Nobody answers in the name of the person who was asked."""

from __future__ import annotations

from shared.clock import now_ms
from shared.errors import CannotDo
from shared.reading.questions import WaitingQuestion, question
from shared.store import Store


async def withdraw_question(store: Store, id: str) -> WaitingQuestion:
    """Let the time of a question be over. It is in the database when this returns; then a housekeeper ends the question as it ends
    those that nobody answered in time: no tool runs, the agent goes on without an answer, and the chat reads what it says."""
    found = await question(store, id)
    if not await store.asks.withdraw(id, now_ms()):
        raise CannotDo("the question is being ended already: its time is over, or somebody has just answered it")
    return found

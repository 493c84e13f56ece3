"""The audit log: every action of an operator is written down before it is made, and how it ended after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.errors import PipelineError
from shared.store import Store
from shared.value import value

T = TypeVar("T")


@value
class Operator:
    """Who acts, and with which role."""

    name: str
    role: str


@value
class Action:
    """What is done, and to what."""

    name: str
    target: str


async def audited(store: Store, operator: Operator, action: Action, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work with a row in the audit log. The work is not begun where the row cannot be written.

    After a crash in between, the row says `begun`: the work may have been done or not.
    """
    number = await store.audit.begin(operator.name, operator.role, action.name, action.target)
    try:
        result = await work()
    except Exception as error:
        said = str(error) if isinstance(error, PipelineError) else type(error).__name__
        await store.audit.end(number, f"failed: {said}")
        raise
    await store.audit.end(number, "done")
    return result

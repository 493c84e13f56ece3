"""Changes of messages that were sent: they share the budget of their bot and chat, and give way to replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from shared.errors import BotRefused, RateLimited
from shared.lane_key import Destination
from shared.sending.budgets import SendBudgets


class BudgetedChanges:
    """Makes changes in one chat."""

    def __init__(self, budgets: SendBudgets, to: Destination) -> None:
        self._budgets = budgets
        self._to = to

    async def change(self, make: Callable[[], Awaitable[None]]) -> timedelta | None:
        """Make a change, if the budget has one to give; otherwise say how long to wait. Raises what the platform answers; if
        that asks us to wait, or refuses the bot, all workers wait."""
        if wait := await self._budgets.take_edit(self._to):
            return wait
        try:
            await make()
        except RateLimited as error:
            await self._budgets.hold(self._to, error.retry_after, whole_bot=error.whole_bot)
            raise
        except BotRefused:
            await self._budgets.refuse(self._to)
            raise
        return None

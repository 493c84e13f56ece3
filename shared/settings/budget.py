"""What answers may cost."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class BudgetSettings(Block):
    """What may be spent in a day. Beyond it, messages are refused until the next day; what is unset has no limit."""

    user_tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens, in and out, that one user may spend."""
    user_cost_per_day: float | None = Field(default=None, ge=0)
    """USD that one user may spend, as far as prices are known."""
    tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens that everybody together may spend."""
    cost_per_day: float | None = Field(default=None, ge=0)
    """USD that everybody together may spend, as far as prices are known."""

    @property
    def of_users(self) -> bool:
        """Whether single users have a limit."""
        return self.user_tokens_per_day is not None or self.user_cost_per_day is not None

    @property
    def of_all(self) -> bool:
        """Whether all users together have a limit."""
        return self.tokens_per_day is not None or self.cost_per_day is not None


class SpendingSettings(Section):
    """Limits on tokens and money."""

    TITLE = "Spending"

    budget: BudgetSettings = BudgetSettings()
    """What may be spent in a day."""

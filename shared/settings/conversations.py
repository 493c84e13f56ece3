"""How long a conversation lasts, what is kept of it, what it may cost, and the deployment's own commands."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.context.reset import Mode, ResetPolicies, ResetPolicy
from shared.messages import CHAT_TYPES
from shared.platforms import FOR_PROGRAMS
from shared.setting_values import Names


class ResetRule(BaseModel):
    """When a conversation ends by itself. What is left out or null is the default here, never another rule's value."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    mode: Mode = "none"
    """`none`: never. `idle`: after lying idle. `daily`: at an hour of the day. `both`: whichever comes first."""
    at_hour: int = Field(default=4, ge=0, le=23)
    """The hour of a daily reset, on the clocks of TIMEZONE."""
    idle_minutes: int = Field(default=1440, ge=1)
    """How long nothing is said before an idle reset."""
    notify: bool = True
    """The chat is told, with the first answer of the new conversation."""
    notify_exclude: Names = FOR_PROGRAMS
    """Platforms whose chats are not told. Unset: those where programs write."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    def policy(self) -> ResetPolicy:
        return ResetPolicy(self.mode, self.at_hour, self.idle_minutes, self.notify, self.notify_exclude)


class Reset(ResetRule):
    """When conversations end by themselves: the rule of the platform, else of the chat type, else this one. Each is whole."""

    by_type: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for `dm`, `group`, `channel`, `thread`, `other`. A thread ends by a rule for `thread` only."""
    by_platform: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for platforms, by name."""

    @model_validator(mode="after")
    def _known(self) -> Reset:
        if unknown := sorted(self.by_type.keys() - CHAT_TYPES):
            raise ValueError(f"RESET__BY_TYPE: there is no chat type {', '.join(unknown)}")
        return self

    def policies(self) -> ResetPolicies:
        by_type = {name: rule.policy() for name, rule in self.by_type.items()}
        return ResetPolicies(self.policy(), by_type, {name: rule.policy() for name, rule in self.by_platform.items()})


class Memory(BaseModel):
    """Notes that outlive a conversation. They are made and shown by agents with a model only."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    enabled: bool = True
    """When a conversation is over, the model is asked what of it is worth keeping; later turns are shown the notes."""
    after_seconds: float = Field(default=300, ge=0)
    """How long after the end of a conversation that is asked."""
    at_once: int = Field(default=5, ge=1)
    """How many conversations a housekeeper has looked at per LOOK_SECONDS, however many have ended meanwhile."""
    look_seconds: float = Field(default=15, gt=0)
    """How often a housekeeper looks for conversations that are over."""
    timeout_seconds: float = Field(default=60, gt=0)
    """The model's time for one conversation. A message of the same chat waits for it, at the most this long."""


class CustomCommand(BaseModel):
    """A slash command of the deployment's own: TEXT is answered as it is, PROMPT goes to the agent."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    text: str | None = None
    """A fixed answer."""
    prompt: str | None = None
    """What the agent is asked; `{args}` stands for what followed the command."""
    help: str = "a command of this bot"
    """What /help says about it."""

    @model_validator(mode="after")
    def _fits(self) -> CustomCommand:
        if (self.text is None) == (self.prompt is None):
            raise ValueError("a command of COMMANDS has either TEXT or PROMPT")
        return self


class Budget(BaseModel):
    """What may be spent in a day. Beyond it, messages are refused until the next day; what is unset has no limit."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    user_tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens, in and out, of one user."""
    user_cost_per_day: float | None = Field(default=None, ge=0)
    """USD of one user, as far as the prices are known."""
    tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens of everybody."""
    cost_per_day: float | None = Field(default=None, ge=0)
    """USD of everybody, as far as the prices are known."""

    @property
    def of_users(self) -> bool:
        return self.user_tokens_per_day is not None or self.user_cost_per_day is not None

    @property
    def of_all(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None

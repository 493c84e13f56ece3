"""What a conversation is, how long it lasts, and what is kept of it."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from shared.busy import BusyMode
from shared.context.reset import Mode, ResetPolicies, ResetPolicy
from shared.messages import CHAT_TYPES
from shared.platforms import FOR_PROGRAMS
from shared.setting_values import Names
from shared.settings.section import Block, Section


class ResetRule(Block):
    """When a conversation ends by itself. What is left out or null is the default here, never another rule's value."""

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
    def _null_is_left_out(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    def policy(self) -> ResetPolicy:
        """The rule as turns judge by it."""
        return ResetPolicy(self.mode, self.at_hour, self.idle_minutes, self.notify, self.notify_exclude)


class ResetSettings(ResetRule):
    """When conversations end by themselves: the rule of the platform, else of the chat type, else this one. Each is whole."""

    by_type: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for `dm`, `group`, `channel`, `thread`, `other`, with the five settings above: `RESET__BY_TYPE__GROUP__MODE`. A
    thread ends by a rule for `thread` only."""
    by_platform: dict[str, ResetRule] = Field(default_factory=dict)
    """Rules for single platforms, with the same settings: `RESET__BY_PLATFORM__<NAME>__MODE`."""

    @field_validator("by_type")
    @classmethod
    def _are_chat_types(cls, rules: dict[str, ResetRule]) -> dict[str, ResetRule]:
        if unknown := sorted(rules.keys() - CHAT_TYPES):
            raise ValueError(f"RESET__BY_TYPE: there is no chat type {', '.join(unknown)}")
        return rules

    def policies(self) -> ResetPolicies:
        """All rules as turns judge by them."""
        by_type = {name: rule.policy() for name, rule in self.by_type.items()}
        return ResetPolicies(self.policy(), by_type, {name: rule.policy() for name, rule in self.by_platform.items()})


class MemorySettings(Block):
    """Notes that outlive a conversation. They are made and shown by agents with a model only."""

    enabled: bool = True
    """When a conversation is over, the model is asked what of it is worth keeping; later turns are shown the notes."""
    after_seconds: float = Field(default=300, ge=0)
    """How long after the end of a conversation the model is asked."""
    at_once: int = Field(default=5, ge=1)
    """How many conversations a housekeeper has looked at per LOOK_SECONDS, however many have ended meanwhile."""
    look_seconds: float = Field(default=15, gt=0)
    """How often a housekeeper looks for conversations that are over."""
    timeout_seconds: float = Field(default=60, gt=0)
    """The model's time for one conversation. A message of the same chat waits for it, at the most this long."""


class ConversationSettings(Section):
    """Who shares a conversation, how much of it a turn sees, and when it ends."""

    TITLE = "Conversations"

    group_sessions_per_user: bool = True
    """In groups, each user has a conversation of their own. False: a group shares one."""
    thread_sessions_per_user: bool = False
    """In threads of groups too. Counts only while GROUP_SESSIONS_PER_USER is on: a shared group has shared threads."""
    shared_chats: Names = ()
    """Groups whose members share one conversation, and one per thread, as `<platform>:<chat id>`. They keep it whatever the
    two settings above say."""
    busy_mode: BusyMode = BusyMode.QUEUE
    """What a message does that comes while the conversation's turn runs. `queue`: it waits for a turn of its own. `collect`:
    all that waits of one sender is one turn. `steer`: the running turn takes it in. `interrupt`: the turn ends and keeps what
    it did. `rollback`: the turn ends and keeps nothing. `reject`: the message is refused. Platforms have a setting of their
    own, and `/queue mode` sets it for one conversation."""
    busy_chats: dict[str, BusyMode] = Field(default_factory=dict)
    """The same for single chats, as `<platform>:<chat id>`. It wins over the platform's."""
    busy_notices: bool = True
    """A chat whose message waits behind a turn of several seconds is told so, with its place in line, at most every 30
    seconds. Programs are not told."""
    history_messages: int = Field(default=120, ge=0)
    """How many rows of the transcript a turn sees. More cost more tokens."""
    compress_idle_minutes: int = Field(default=0, ge=0)
    """A conversation that lay idle so long is summarised before its next turn: the provider's prompt cache has forgotten it
    by then, and all of it would be read, and paid, anew. 0: only what would not fit is summarised."""
    titles: bool = True
    """Give every conversation a title after its first answer: the model's, or the first words where there is no model."""
    timezone: str = "UTC"
    """Whose clocks count for a daily reset, a day's budget and LLM__TIMESTAMPS: an IANA name such as Europe/Berlin."""
    reset: ResetSettings = ResetSettings()
    """When conversations end by themselves."""
    memory: MemorySettings = MemorySettings()
    """Notes that outlive a conversation."""

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError("TIMEZONE is an IANA name such as Europe/Berlin") from None
        return name

    @property
    def zone(self) -> ZoneInfo:
        """The clocks that count."""
        return ZoneInfo(self.timezone)

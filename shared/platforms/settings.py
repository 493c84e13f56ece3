"""What the settings of every platform have in common. Each platform's own block stands in its file here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.busy import BusyMode
from shared.finding import Finding
from shared.setting_values import PREFIX, Names
from shared.value import value


@value
class SenderQuota:
    """How much may come in with one of a platform's keys. None: as QUOTA says for every sender."""

    messages_per_minute: int | None = None
    turns_in_flight: int | None = None


class PlatformSettings(BaseModel):
    """A platform's block. A setting that would do nothing on a platform is refused there, with the reason."""

    model_config = ConfigDict(extra="forbid", defer_build=True, allow_inf_nan=False)

    PREFIX: ClassVar[str] = ""
    """How the block's settings are called in messages, such as `WEBHOOK`."""
    NEEDS: ClassVar[tuple[str, ...]] = ()
    """The settings without which it is off."""
    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Settings that other platforms have and that would do nothing here, each with the reason."""

    enabled: bool | None = None
    """Unset: on when its secrets are there. True without them: the process refuses to start."""
    admin_users: Names = ()
    """Platform user ids that may give every command here."""
    home_channel: str | None = None
    """Where messages go that answer nobody, such as scheduled ones."""

    busy_mode: BusyMode | None = None
    """What a message does here that comes while a turn runs. Unset: as BUSY_MODE says."""

    @model_validator(mode="before")
    @classmethod
    def _does_something(cls, values: Any) -> Any:
        for name, reason in cls.REFUSED.items():
            if isinstance(values, dict) and name in values:
                raise ValueError(f"{cls.PREFIX}__{name.upper()} would do nothing: {reason}; take it out")
        return values

    @property
    def on(self) -> bool:
        """Whether messages are taken from the platform and sent to it."""
        return self.enabled is not False

    @property
    def needed(self) -> str:
        """The settings that turn it on, by the names that an operator sets."""
        if self.enabled is False:
            return f"{PREFIX}{self.PREFIX}__ENABLED=true"
        return " and ".join(f"{PREFIX}{self.PREFIX}__{name}" for name in self.NEEDS) or "its secrets"

    @property
    def listens(self) -> bool:
        """Whether somebody has to run `keyturn listen` for it; `keyturn up` does."""
        return False

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses that its messages and secrets travel to, by what `keyturn doctor` calls them."""
        return {}

    @property
    def sender_quotas(self) -> Mapping[str, SenderQuota]:
        """The quotas of keys that have their own, by the sender's name that the receiver gives."""
        return {}

    def check(self) -> None:
        """ConfigurationError for what can never work, beyond what is looked at when settings are read."""

    def findings(self) -> Iterator[Finding]:
        """What `keyturn doctor` says of the block."""
        yield from ()


class ChatSettings(PlatformSettings):
    """The block of a platform where people write, known by ids that they cannot choose."""

    allowed_users: Names = ()
    """Platform user ids that may talk to the bot here."""
    pairing: bool | None = None
    """Whether strangers are told a pairing code here. Unset: as PAIRING says."""
    require_mention: bool = True
    """In groups, only messages that name the bot are answered."""
    free_chats: Names = ()
    """Ids of groups where messages are answered that do not name the bot."""
    send_timeout_seconds: float = Field(default=30, gt=0)
    """How long a send may take before it counts as unanswered."""
    sends_per_second: float | None = Field(default=None, gt=0)
    """How many messages a bot sends in a second, to all its chats and from all workers together. Others wait, and changes of an
    answer that is being written wait for them. Unset: as many as the platform is known to take."""
    chat_sends_per_minute: float | None = Field(default=None, gt=0)
    """The same for one chat, in a minute. Unset: as many as the platform is known to take there."""


_KEY_PERMITS = "whoever holds its key may talk for any user"
_ALWAYS_MEANT = "every message that is brought is meant for the bot"
REFUSED_OF_PROGRAMS: Mapping[str, str] = {
    "allowed_users": _KEY_PERMITS,
    "pairing": _KEY_PERMITS,
    "require_mention": _ALWAYS_MEANT,
    "free_chats": _ALWAYS_MEANT,
}

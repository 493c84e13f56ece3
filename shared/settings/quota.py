"""How much one user, chat, platform or sender may bring at a time."""

from __future__ import annotations

from pydantic import Field

from shared.settings.section import Block, Section


class QuotaSettings(Block):
    """Limits on what comes in. Beyond one, a chat is told once and its further messages are recorded as rejected; whoever
    holds an API key or a webhook secret is answered 429. What is unset has no limit.

    A turn is in flight from its first waiting message until nothing waits in its conversation. Control messages such as
    /stop do not wait for one.
    """

    user_messages_per_minute: int | None = Field(default=None, ge=1)
    """Messages that one user may send in a minute, in all chats of a platform together."""
    user_turns_in_flight: int | None = Field(default=None, ge=1)
    """Conversations of one user that may be waiting or running at a time."""
    chat_messages_per_minute: int | None = Field(default=None, ge=1)
    """Messages that may be sent in one chat in a minute, by all of its users together."""
    chat_turns_in_flight: int | None = Field(default=None, ge=1)
    """Conversations of one chat that may be waiting or running at a time."""
    platform_messages_per_minute: int | None = Field(default=None, ge=1)
    """Messages that one platform may bring in a minute. `POST /v1/deliveries` counts for the API, each target as one."""
    platform_turns_in_flight: int | None = Field(default=None, ge=1)
    """Conversations of one platform that may be waiting or running at a time."""
    sender_messages_per_minute: int | None = Field(default=None, ge=1)
    """Messages that may come in a minute with one API key or one webhook secret, and texts that the key wants said in chats."""
    sender_turns_in_flight: int | None = Field(default=None, ge=1)
    """Conversations that one API key or one webhook secret may have waiting or running at a time."""

    @property
    def of_senders(self) -> bool:
        """Whether single API keys and webhook secrets have a limit."""
        return self.sender_messages_per_minute is not None or self.sender_turns_in_flight is not None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return any(limit is not None for limit in self.model_dump().values())


class LimitSettings(Section):
    """Limits on what comes in."""

    TITLE = "Quotas"

    quota: QuotaSettings = QuotaSettings()
    """How much one user, chat, platform or sender may bring at a time."""

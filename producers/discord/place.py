"""Where something is said: a direct message, a channel of a guild, or a thread in one. A forum post is a thread."""

from __future__ import annotations

from typing import Any

from producers.discord.snowflake import optional_snowflake, snowflake
from producers.fields import name, number
from shared.value import value

GROUP_DM = 3
THREADS = (10, 11, 12)  # in an announcement channel; public, forum posts too; private


@value
class Channel:
    """What is known of a channel. A thread is one, and says which channel it is in."""

    id: str
    type: int | None = None
    name: str | None = None
    topic: str | None = None
    parent: str | None = None

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Channel:
        """Malformed for what is no channel object."""
        kind = number(fields, "type") if fields.get("type") is not None else None
        parent = optional_snowflake(fields, "parent_id")
        return cls(snowflake(fields, "id"), kind, name(fields, "name"), name(fields, "topic"), parent)

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS


@value
class DiscordPlace:
    """A chat as a Source names it: threads belong to their parent channel."""

    chat: str
    chat_type: str
    thread: str | None = None
    name: str | None = None
    topic: str | None = None


def place_of(channel: Channel, parent: Channel | None, *, in_guild: bool, is_private: bool = False) -> DiscordPlace:
    """`is_private`: other people's direct messages, where somebody called an app that they brought along."""
    if not in_guild:
        group = is_private or channel.type == GROUP_DM
        return DiscordPlace(channel.id, "group" if group else "dm", name=channel.name)
    if not channel.is_thread:
        return DiscordPlace(channel.id, "channel", name=channel.name, topic=channel.topic)
    names = [known for known in (parent.name if parent is not None else None, channel.name) if known]
    return DiscordPlace(
        channel.parent or channel.id,
        "thread",
        thread=channel.id,
        name=" / ".join(names) or None,
        topic=parent.topic if parent is not None else None,
    )

"""What a message does not say of itself and its reader has to know: who we are, what roles we have, where it was said.

It travels with the message, so that the message can be understood later, by another process, just the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.discord.place import Channel
from producers.discord.snowflake import is_snowflake, snowflake
from producers.fields import ITEM_LIMIT, name, object_
from shared.errors import Malformed
from shared.value import value


@value
class DiscordKnown:
    """What a message does not say of its place and of the bot, looked up beforehand, so that normalising is pure."""

    me: str
    my_name: str | None
    my_roles: frozenset[str]  # in the guild where the message was said
    channel: Channel | None
    parent: Channel | None
    names: Mapping[str, str]  # of roles and channels that the text mentions

    @classmethod
    def read(cls, fields: dict[str, Any]) -> DiscordKnown:
        """Malformed for what `write` did not give."""
        me = object_(fields, "me")
        found = object_(fields, "names") if fields.get("names") is not None else {}
        names = {id: text for id in found if (text := name(found, id)) is not None}
        roles = frozenset(ids(fields, "roles"))
        return cls(
            snowflake(me, "id"), name(me, "name"), roles, _channel(fields, "channel"), _channel(fields, "parent"), names
        )

    def write(self) -> dict[str, Any]:
        return {
            "me": {"id": self.me, "name": self.my_name},
            "roles": sorted(self.my_roles),
            "channel": _written(self.channel),
            "parent": _written(self.parent),
            "names": dict(self.names),
        }


def ids(fields: dict[str, Any], field: str) -> list[str]:
    """A list of ids; empty where there is none."""
    found = fields.get(field)
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > ITEM_LIMIT or not all(is_snowflake(id) for id in found):
        raise Malformed(f"{field} is not a list of ids")
    return found


def _channel(fields: dict[str, Any], field: str) -> Channel | None:
    return Channel.read(object_(fields, field)) if fields.get(field) is not None else None


def _written(channel: Channel | None) -> dict[str, Any] | None:
    if channel is None:
        return None
    return {
        "id": channel.id,
        "type": channel.type,
        "name": channel.name,
        "topic": channel.topic,
        "parent_id": channel.parent,
    }

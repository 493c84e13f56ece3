"""What the gateway tells beside messages: channels and threads with their parents, names, and the roles that we have.

It is kept in memory, as far as it was used last. A process that resumed another's session was told nothing of it and asks the HTTP API, once for each.
Where Discord does not answer, a message is read without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from producers.discord.content import marked_ids
from producers.discord.known import DiscordKnown
from producers.discord.lookup import Lookups
from producers.discord.place import Channel
from producers.discord.recent import Recent
from producers.discord.snowflake import is_snowflake
from shared.errors import Malformed, Transient

REMEMBERED = 100_000  # channels and threads, and as many names of roles
_CHANNEL_KINDS = ("CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE")
_ROLE_KINDS = ("GUILD_ROLE_CREATE", "GUILD_ROLE_UPDATE")


class DiscordDirectory:
    """What is known of the places where a bot is."""

    def __init__(self, lookups: Lookups, credential: str) -> None:
        self._lookups = lookups
        self._credential = credential
        self._channels = Recent[Channel | None](REMEMBERED)  # None: asked for, and Discord does not say
        self._role_names = Recent[str](REMEMBERED)
        self._my_roles: dict[str, set[str]] = {}  # by guild
        self.me = ""
        self._my_name: str | None = None

    async def introduce(self) -> None:
        """Ask who we are, unless READY said it. Without an answer the token says our id. Transient where it does not either."""
        if not self.me:
            self._meet(await self._lookups.ask("/users/@me") or {"id": self._credential})
        if not self.me:
            raise Transient("Discord does not say who we are")

    def learn(self, kind: str, data: Any) -> None:
        """Take what a dispatch says. What is no such thing is no matter: a message's own fields say enough to go on."""
        if not isinstance(data, dict):
            return
        if kind == "READY":
            self._meet(data.get("user"))
        elif kind in _CHANNEL_KINDS:
            self._learn_channel(str(data.get("guild_id")), data)
        elif kind in ("CHANNEL_DELETE", "THREAD_DELETE"):
            self._channels.forget(str(data.get("id")))
        elif kind in ("GUILD_CREATE", "THREAD_LIST_SYNC"):
            guild = str(data.get("id" if kind == "GUILD_CREATE" else "guild_id"))
            for channel in (*_objects(data, "channels"), *_objects(data, "threads")):
                self._learn_channel(guild, channel)
            if kind == "GUILD_CREATE":
                self._learn_guild(guild, data)
        elif kind == "GUILD_DELETE" and data.get("unavailable") is not True:  # an outage: we are still in it
            self._forget_guild(str(data.get("id")))
        elif kind in _ROLE_KINDS and isinstance(data.get("role"), dict):
            self._learn_role(str(data.get("guild_id")), data["role"])
        elif kind == "GUILD_MEMBER_UPDATE" and _user_of(data) == self.me:
            self._learn_roles(str(data.get("guild_id")), data)

    async def about(self, message: dict[str, Any]) -> DiscordKnown:
        """What the reader of a message has to know, as far as Discord says it. Denied when the token is no good."""
        channel = await self._channel_of(message)
        parent = self._channels.get(channel.parent) if channel is not None and channel.parent else None
        content = message.get("content")
        marked = marked_ids(content) if isinstance(content, str) else set()
        names = {id: shown for id in marked if (shown := self._name_of(id)) is not None}
        return DiscordKnown(self.me, self._my_name, frozenset(await self._roles_in(message)), channel, parent, names)

    def _name_of(self, id: str) -> str | None:
        if (channel := self._channels.get(id)) is not None:
            return channel.name
        return self._role_names.get(id)

    async def _channel_of(self, message: dict[str, Any]) -> Channel | None:
        """The channel of a message in a guild. It is asked for only if it may be a thread: they belong to their parent."""
        id, kind = str(message.get("channel_id")), message.get("channel_type")
        known = self._channels.get(id)
        if known is not None or id in self._channels or not is_snowflake(id) or message.get("guild_id") is None:
            return known
        if kind is not None and not Channel(id, kind).is_thread:
            return None
        found = await self._lookups.ask(f"/channels/{id}")
        if found is None:
            return None
        guild = str(message.get("guild_id"))
        if id not in self._channels:
            self._channels.keep(id, guild, None)
        self._learn_channel(guild, found)
        return self._channels.get(id)

    async def _roles_in(self, message: dict[str, Any]) -> set[str]:
        """Our roles where a message was said. They are asked for only if it mentions any."""
        guild = str(message.get("guild_id"))
        if guild not in self._my_roles and message.get("mention_roles") and is_snowflake(guild):
            found = await self._lookups.ask(f"/guilds/{guild}/members/{self.me}")
            if found is not None:
                self._learn_roles(guild, found)
        return self._my_roles.get(guild, set())

    def _meet(self, user: Any) -> None:
        if isinstance(user, dict) and is_snowflake(user.get("id")):
            self.me = user["id"]
            shown = user.get("global_name") or user.get("username")
            self._my_name = shown if isinstance(shown, str) else None

    def _learn_channel(self, guild: str, fields: dict[str, Any]) -> None:
        try:
            channel = Channel.read(fields)
        except Malformed:
            return
        self._channels.keep(channel.id, guild, channel)

    def _forget_guild(self, guild: str) -> None:
        self._channels.forget_guild(guild)
        self._role_names.forget_guild(guild)
        self._my_roles.pop(guild, None)

    def _learn_guild(self, guild: str, data: dict[str, Any]) -> None:
        self._my_roles.setdefault(guild, set())
        for member in _objects(data, "members"):
            if _user_of(member) == self.me:
                self._learn_roles(guild, member)
        for role in _objects(data, "roles"):
            self._learn_role(guild, role)

    def _learn_role(self, guild: str, role: dict[str, Any]) -> None:
        id, shown, tags = role.get("id"), role.get("name"), role.get("tags")
        if not is_snowflake(id):
            return
        if isinstance(shown, str):
            self._role_names.keep(str(id), guild, shown.removeprefix("@"))
        if isinstance(tags, dict) and tags.get("bot_id") == self.me:  # the role that came with us
            self._my_roles.setdefault(guild, set()).add(str(id))

    def _learn_roles(self, guild: str, member: dict[str, Any]) -> None:
        roles = member.get("roles")
        ids = {role for role in roles if is_snowflake(role)} if isinstance(roles, list) else set()
        self._my_roles[guild] = ids


def _objects(data: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    found = data.get(field)
    yield from (item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def _user_of(member: dict[str, Any]) -> Any:
    user = member.get("user")
    return user.get("id") if isinstance(user, dict) else None

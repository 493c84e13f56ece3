"""How a Discord bot is set up: its token says who it is, its application what it may hear and where interactions go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from producers.connecting import Connect, PersonQuestion, Question
from shared.errors import Transient
from shared.finding import Finding, fail, ok, warn
from shared.platforms.discord import NAME, PUBLIC_KEY_FORM, SNOWFLAKE_FORM, TOKEN_FORM, DiscordSettings
from shared.platforms.discord_api import DiscordApi, DiscordRefused, open_discord_api
from shared.platforms.discord_limits import Route

APPLICATION = "/applications/@me"
_MAY_READ_TEXT = 1 << 18 | 1 << 19  # flags of an application: the message content intent, for many servers or for few
_PORTAL = "https://discord.com/developers/applications"


class DiscordConnect(Connect[DiscordSettings]):
    """Messages come by the gateway; interactions too, unless there is a public key."""

    steps = (
        f"At {_PORTAL} choose New Application. Note its Application ID.",
        "Bot: choose Reset Token and copy it. On the same page turn on Message Content Intent.",
        "Invite the bot to a server: https://discord.com/oauth2/authorize?client_id=<APPLICATION ID>"
        "&scope=bot+applications.commands&permissions=274877975552",
    )
    questions = (
        Question(
            "token",
            "The bot's token",
            "under Bot, Reset Token",
            secret=True,
            form=TOKEN_FORM,
            looks="three words joined by dots, without `Bot` before them",
        ),
        Question(
            "public_key",
            "The application's public key, if slash commands and buttons are to come by webhook",
            "64 hexadecimal digits, under General Information; leave it empty otherwise",
            needed=False,
            form=PUBLIC_KEY_FORM,
            looks="64 hexadecimal digits",
        ),
    )
    person = PersonQuestion(
        "Your own user id",
        "in Discord: Developer Mode on, then right-click your name, Copy User ID",
        SNOWFLAKE_FORM,
        "a number, and no name",
    )
    address_is_for = "Discord posts slash commands and buttons there"

    def wants_address(self, block: DiscordSettings) -> bool:
        return block.public_key is not None

    async def check(self, block: DiscordSettings) -> Sequence[Finding]:
        async with open_discord_api(block) as api:
            me = await api.ask("/users/@me")
            application = await api.ask(APPLICATION)
        id, name = me.get("id"), me.get("username")
        if not isinstance(id, str) or not isinstance(name, str):
            raise Transient("Discord: users/@me says something else")
        return [ok(NAME, f"Discord knows the token: {name}, id {id}"), *_application(block, application)]

    async def set_webhook(self, block: DiscordSettings, url: str | None) -> Sequence[Finding]:
        """Discord asks the address at once, so the receiver must be running there with this public key."""
        if url is None:
            return ()
        try:
            async with open_discord_api(block) as api:
                await api.call(Route("PATCH", APPLICATION), {"interactions_endpoint_url": url})
        except DiscordRefused as refused:
            fix = f"start Keyturn there, then run this command again, or enter {url} at {_PORTAL}"
            return (warn(NAME, f"Discord does not take the address for interactions yet: {refused}", fix),)
        return (ok(NAME, "Discord posts interactions to the address"),)

    async def greet(self, block: DiscordSettings, to: str, text: str) -> None:
        async with open_discord_api(block) as api:
            channel = await _direct_channel(api, to)
            await api.call(Route("POST", f"/channels/{channel}/messages"), {"content": text})


def _application(block: DiscordSettings, application: dict[str, Any]) -> Sequence[Finding]:
    flags, key = application.get("flags"), application.get("verify_key")
    found = []
    if block.message_content and type(flags) is int and not flags & _MAY_READ_TEXT:
        fix = f"turn on Message Content Intent under Bot at {_PORTAL}, or set DISCORD__MESSAGE_CONTENT=false"
        found.append(fail(NAME, "the application may not read the text of messages: Discord will refuse us", fix))
    if block.public_key is not None and isinstance(key, str) and key.lower() != block.public_key.lower():
        fix = f"copy it from General Information at {_PORTAL}"
        found.append(fail(NAME, "the public key is another application's", fix))
    return found


async def _direct_channel(api: DiscordApi, to: str) -> str:
    """The chat with a person; for the id of a channel, that."""
    try:
        opened = await api.call(Route("POST", "/users/@me/channels"), {"recipient_id": to})
    except DiscordRefused:
        return to
    id = opened.get("id")
    if not isinstance(id, str):
        raise Transient("Discord: users/@me/channels says something else")
    return id


CONNECT = DiscordConnect()

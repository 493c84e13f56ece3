"""A slash command, or a pressed button, becomes the message that its caller might have typed. Pure; no I/O.

`/ask` says its options to the agent; any other command is the command of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from producers.discord.attachments import media_of
from producers.discord.place import Channel, place_of
from producers.discord.snowflake import given_at, optional_snowflake, snowflake
from producers.fields import flag, items, name, number, object_, text
from producers.heard import Heard, Ignored
from shared.choices import pressed
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Media, Source
from shared.platforms.discord import NAME, InteractionAnswer

ASK = "ask"
COMMAND, _COMPONENT = 2, 3  # the types of an interaction: somebody gave a command, or used a part of a message
_TYPED = 1  # the type of a command: it was typed, and not chosen from a menu
_NESTED = (1, 2)  # the types of options that hold options
_NAMED = {6: ("@", "users"), 7: ("#", "channels"), 8: ("@", "roles")}
_FILE = 11
_PRIVATE = 2  # the context of a call in other people's direct messages
_TOKEN = re.compile(r"[A-Za-z0-9_.=-]{1,1000}", re.ASCII)
_DEPTH = 3  # a group, its command, its options


def normalise_command(interaction: dict[str, Any], received_at: int) -> Heard:
    """What an interaction says; Malformed where something we read is of the wrong kind."""
    if is_press(interaction):
        return _pressed(interaction, received_at)
    if number(interaction, "type") != COMMAND:
        return Ignored("kind")
    data = object_(interaction, "data")
    if data.get("type") not in (None, _TYPED):
        return Ignored("kind")
    if flag(_caller(interaction), "bot"):
        return Ignored("bot")
    said, media = _said(data), tuple(_files(data))
    if not said and not media:
        return Ignored("empty")
    id = snowflake(interaction, "id")
    return Inbound(
        id=message_id(NAME, "", id),
        event_id=id,
        source=_source(interaction),
        text=said,
        media=media,
        sent_at=given_at(id),
        received_at=received_at,
        message=str(InteractionAnswer(snowflake(interaction, "application_id"), token_of(interaction))),
    )


def is_press(interaction: dict[str, Any]) -> bool:
    """Whether somebody pressed a button of a question of ours."""
    data = interaction.get("data")
    return (
        interaction.get("type") == _COMPONENT and isinstance(data, dict) and pressed(data.get("custom_id")) is not None
    )


def _pressed(interaction: dict[str, Any], received_at: int) -> Heard:
    """The command of a button. Its answer is a message of its own: the interaction's is the question, which stays."""
    if flag(_caller(interaction), "bot"):
        return Ignored("bot")
    id, below = snowflake(interaction, "id"), object_(interaction, "message")
    return Inbound(
        id=message_id(NAME, "", id),
        event_id=id,
        source=_source(interaction),
        text=text(object_(interaction, "data"), "custom_id") or "",
        reply_to=snowflake(below, "id"),
        sent_at=given_at(id),
        received_at=received_at,
    )


def token_of(interaction: dict[str, Any]) -> str:
    """What permits to answer; Malformed where it could not stand in a path."""
    token = text(interaction, "token")
    if token is None or not _TOKEN.fullmatch(token):
        raise Malformed("token is not a token")
    return token


def _source(interaction: dict[str, Any]) -> Source:
    guild, channel_id = optional_snowflake(interaction, "guild_id"), snowflake(interaction, "channel_id")
    given = object_(interaction, "channel") if interaction.get("channel") is not None else {}
    channel = Channel.read({**given, "id": channel_id})
    place = place_of(channel, None, in_guild=guild is not None, is_private=interaction.get("context") == _PRIVATE)
    member = object_(interaction, "member") if interaction.get("member") is not None else {}
    user = _caller(interaction)
    user_name = name(member, "nick") or name(user, "global_name") or name(user, "username")
    return Source(
        platform=NAME,
        chat=place.chat,
        chat_type=place.chat_type,
        user=snowflake(user, "id"),
        thread=place.thread,
        scope=guild,
        chat_name=place.name or (user_name if place.chat_type == "dm" else None),
        user_name=user_name,
        topic=place.topic,
    )


def _caller(interaction: dict[str, Any]) -> dict[str, Any]:
    """In a guild the member's user."""
    holder = object_(interaction, "member") if interaction.get("member") is not None else interaction
    return object_(holder, "user")


def _said(data: dict[str, Any]) -> str:
    command = name(data, "name") or ""
    words = " ".join(word for word in _words(data, data) if word)
    return storable(words if command == ASK else f"/{command} {words}").strip()


def _words(data: dict[str, Any], holder: dict[str, Any], depth: int = _DEPTH) -> Iterator[str]:
    for option in items(holder, "options"):
        kind = option.get("type")
        if kind in _NESTED and depth:
            yield name(option, "name") or ""
            yield from _words(data, option, depth - 1)
        elif kind != _FILE:
            yield _value(data, option, kind)


def _value(data: dict[str, Any], option: dict[str, Any], kind: Any) -> str:
    value = option.get("value")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    said = text(option, "value") or ""
    if type(kind) is not int or kind not in _NAMED:
        return said
    sign, group = _NAMED[kind]
    found = _resolved(data, group, said)
    shown = name(found, "global_name") or name(found, "username") or name(found, "name")
    return f"{sign}{shown or said}"


def _files(data: dict[str, Any]) -> Iterator[Media]:
    for option in items(data, "options"):
        if option.get("type") == _FILE:
            yield media_of(_resolved(data, "attachments", text(option, "value") or ""))


def _resolved(data: dict[str, Any], group: str, id: str) -> dict[str, Any]:
    """What an option's id stands for; empty where Discord did not say."""
    if data.get("resolved") is None or object_(data, "resolved").get(group) is None:
        return {}
    found = object_(object_(data, "resolved"), group)
    return object_(found, id) if found.get(id) is not None else {}

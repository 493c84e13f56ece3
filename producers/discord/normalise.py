"""Step 2 for Discord: a dispatch of the gateway, or an interaction, becomes an Inbound, or a reason to leave it. Pure; no I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from producers.discord.attachments import attachments
from producers.discord.commands import normalise_command
from producers.discord.content import readable, without_address
from producers.discord.known import DiscordKnown, ids
from producers.discord.place import Channel, DiscordPlace, place_of
from producers.discord.snowflake import given_at, optional_snowflake, snowflake
from producers.fields import flag, items, name, number, object_, text
from producers.heard import Heard, Ignored
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Source
from shared.platforms.discord import NAME

MESSAGE, INTERACTION = "MESSAGE_CREATE", "INTERACTION_CREATE"
_SPOKEN = (0, 19)  # a message, and one that is a reply; all other types are Discord's own words
_FORWARD = 1  # the type of a reference that brings a message along


def normalise(fields: dict[str, Any], received_at: int) -> Heard:
    """What an event is to us. Malformed where something we read is of the wrong kind; fields we do not know are no matter."""
    if fields.get("t") == INTERACTION:
        return normalise_command(object_(fields, "d"), received_at)
    if fields.get("t") != MESSAGE:
        return Ignored("kind")
    message, known = object_(fields, "d"), DiscordKnown.read(object_(fields, "known"))
    author = object_(message, "author")
    user = snowflake(author, "id")
    if (reason := _not_spoken(message, author, user, known)) is not None:
        return Ignored(reason)
    names, place = _names(message, known), _place(message, known)
    said, media = _said(message, known, names), attachments(message)
    if not said and not media:
        return Ignored("empty")  # a sticker, a poll; or a text that we may not read
    reply, id = _reply(message), snowflake(message, "id")
    answers_us = reply is not None and reply[1] == known.me
    is_direct = place.chat_type == "dm"
    earlier = _earlier(message, known) if reply is not None and not is_direct and not answers_us else None
    return Inbound(
        id=message_id(NAME, "", id),
        event_id=id,
        source=_source(message, user, place, _author_name(message, author)),
        text=said,
        media=media,
        reply_to=reply[0] if reply is not None else None,
        mentioned=is_direct or answers_us or _is_mentioned(message, known),
        sent_at=_sent_at(message, id),
        received_at=received_at,
        message=id,
        earlier=earlier,
        earlier_by=reply[1] if earlier is not None and reply is not None else None,
    )


def _not_spoken(message: dict[str, Any], author: dict[str, Any], user: str, known: DiscordKnown) -> str | None:
    """Why nobody said this to us: it is our own, a loop waiting to happen, or Discord's own words."""
    if user == known.me:
        return "own message"
    if message.get("webhook_id") is not None:
        return "posted by a webhook"
    if flag(author, "bot"):
        return "bot"
    return None if number(message, "type") in _SPOKEN else "system message"


def _source(message: dict[str, Any], user: str, place: DiscordPlace, user_name: str | None) -> Source:
    return Source(
        platform=NAME,
        chat=place.chat,
        chat_type=place.chat_type,
        user=user,
        thread=place.thread,
        scope=optional_snowflake(message, "guild_id"),
        chat_name=place.name or (user_name if place.chat_type == "dm" else None),
        user_name=user_name,
        topic=place.topic,
    )


def _place(message: dict[str, Any], known: DiscordKnown) -> DiscordPlace:
    channel = known.channel
    if channel is None or channel.type is None:
        kind = number(message, "channel_type") if message.get("channel_type") is not None else None
        channel = Channel(snowflake(message, "channel_id"), kind)
    return place_of(channel, known.parent, in_guild=message.get("guild_id") is not None)


def _is_mentioned(message: dict[str, Any], known: DiscordKnown) -> bool:
    """By name or by a role of ours. @everyone means everyone else."""
    by_name = any(snowflake(user, "id") == known.me for user in items(message, "mentions"))
    return by_name or not known.my_roles.isdisjoint(ids(message, "mention_roles"))


def _said(message: dict[str, Any], known: DiscordKnown, names: dict[str, str]) -> str:
    """The text, or that of a message that was forwarded."""
    said = text(message, "content")
    if said is None:
        forwarded = (object_(found, "message") for found in items(message, "message_snapshots")[:1])
        said = next((text(found, "content") for found in forwarded), None)
    return readable(without_address(said or "", {known.me, *known.my_roles}), names).strip()


def _names(message: dict[str, Any], known: DiscordKnown) -> dict[str, str]:
    """The names of everything that the text may mention."""
    people = {snowflake(user, "id"): _author_name(user, user) for user in items(message, "mentions")}
    names = {**known.names, known.me: known.my_name, **people}
    return {id: shown for id, shown in names.items() if shown}


def _reply(message: dict[str, Any]) -> tuple[str, str | None] | None:
    """The message that this one answers, and who said that, where Discord still knows."""
    if message.get("message_reference") is None:
        return None
    reference = object_(message, "message_reference")
    if reference.get("type") == _FORWARD or reference.get("message_id") is None:
        return None
    answered = snowflake(reference, "message_id")
    if message.get("referenced_message") is None:
        return answered, None
    return answered, snowflake(object_(object_(message, "referenced_message"), "author"), "id")


def _earlier(message: dict[str, Any], known: DiscordKnown) -> str | None:
    """What others said that this message answers: no conversation with the bot has it."""
    if message.get("referenced_message") is None:
        return None
    answered = object_(message, "referenced_message")
    said, author = text(answered, "content"), object_(answered, "author")
    if said is None:
        return None
    return storable(f"{_author_name(answered, author) or 'someone'}: {readable(said, _names(answered, known))}")


def _author_name(holder: dict[str, Any], author: dict[str, Any]) -> str | None:
    """As the guild calls them, as they call themselves, or their handle."""
    nick = name(object_(holder, "member"), "nick") if holder.get("member") is not None else None
    return nick or name(author, "global_name") or name(author, "username")


def _sent_at(message: dict[str, Any], id: str) -> int:
    if (said := text(message, "timestamp")) is None:
        return given_at(id)
    try:
        at = datetime.fromisoformat(said)
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Malformed("timestamp is not a time") from None

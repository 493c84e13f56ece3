"""Step 2 for Slack: an event, a slash command or a pressed button becomes an Inbound, or a reason to leave it. Pure; no I/O."""

from __future__ import annotations

from typing import Any

from producers.fields import flag, items, object_, text
from producers.heard import Heard, Ignored
from producers.slack.attachments import attachments
from producers.slack.interactions import button, command
from producers.slack.known import SlackBot, SlackKnown
from producers.slack.places import chat_type, id_, source, thread_of, timestamp
from producers.slack.quoted import quoted
from producers.slack.text import readable
from shared.codec import message_id
from shared.errors import Malformed
from shared.messages import Inbound
from shared.platforms.slack import NAME

MESSAGES = ("message", "app_mention")  # one message may come as both
_SUBTYPES = (None, "file_share", "thread_broadcast", "me_message")  # others tell of changes, joins and the like
_SLACKBOT = "USLACKBOT"


def normalise(payload: dict[str, Any], bot: SlackBot, known: SlackKnown, received_at: int) -> Heard:
    """What a payload is to us. Malformed where something we read is of the wrong kind; fields we do not know are no matter."""
    kind = payload.get("type")
    if kind == "event_callback":
        return _event(payload, bot, known, received_at)
    if kind == "block_actions":
        return button(payload, bot, known, received_at)
    if kind is None and payload.get("command") is not None:
        return command(payload, bot, known, received_at)
    if not isinstance(kind, str) and not payload.get("ssl_check"):
        raise Malformed("type is not text")
    return Ignored("kind")


def _event(payload: dict[str, Any], bot: SlackBot, known: SlackKnown, received_at: int) -> Heard:
    event = object_(payload, "event")
    if event.get("type") not in MESSAGES:
        return Ignored("kind")
    if event.get("subtype") not in _SUBTYPES or flag(event, "hidden"):
        return Ignored("subtype")
    if event.get("bot_id") is not None or event.get("user") in (bot.user, _SLACKBOT):
        return Ignored("bot")  # ourselves, or a loop waiting to happen
    if event.get("user") is None:
        return Ignored("no sender")
    if _is_anothers(payload, bot):
        return Ignored("another bot's")
    return _message(event, bot, known, received_at)


def _message(event: dict[str, Any], bot: SlackBot, known: SlackKnown, received_at: int) -> Heard:
    channel, user, sent_as = id_(event, "channel"), id_(event, "user"), timestamp(event, "ts")
    kind = chat_type(channel, event.get("channel_type"), known)
    said, media = readable(text(event, "text") or "", bot.user), attachments(event)
    words = "\n\n".join(filter(None, (said.text, quoted(event, bot.user))))
    if not words and not media and not said.mentioned:
        return Ignored("empty")
    parent = timestamp(event, "thread_ts") if event.get("thread_ts") is not None else None
    answers_us = event.get("parent_user_id") == bot.user
    # Not the event's id: a mention comes as two events, and both are this message.
    event_id = f"{bot.team}:{channel}:{sent_as}"
    return Inbound(
        id=message_id(NAME, "", event_id),
        event_id=event_id,
        source=source(bot, known, channel, kind, user, thread_of(parent, sent_as, kind, bot)),
        text=words or ("" if media else f"@{bot.name}"),  # a bare mention says something too
        media=media,
        reply_to=parent if parent != sent_as else None,
        mentioned=kind == "dm" or said.mentioned or answers_us or event.get("type") == "app_mention",
        sent_at=milliseconds(sent_as),
        received_at=received_at,
        message=sent_as,
    )


def _is_anothers(payload: dict[str, Any], bot: SlackBot) -> bool:
    """Whether the event was brought for another workspace's installation of the app, where we have no token to answer."""
    bots = [entry.get("user_id") for entry in items(payload, "authorizations") if flag(entry, "is_bot")]
    return bool(bots) and bot.user not in bots


def milliseconds(sent_as: str) -> int:
    """The wall clock in a message's id, which is never read as a fraction: it is an id."""
    seconds, _, fraction = sent_as.partition(".")
    return int(seconds) * 1000 + int(fraction.ljust(3, "0")[:3])


def channel_of(payload: dict[str, Any]) -> str:
    """The channel whose order a payload belongs to, the one that `normalise` reads; empty where it has none."""
    kind = payload.get("type")
    if kind == "event_callback":
        holder, field = payload.get("event"), "channel"
    elif kind == "block_actions":
        holder, field = payload.get("channel"), "id"
    else:
        holder, field = payload, "channel_id"
    found = holder.get(field) if isinstance(holder, dict) else None
    return found if isinstance(found, str) else ""


def person_of(payload: dict[str, Any]) -> str:
    """Who wrote a message event; empty where nobody did, or where the payload says the name itself."""
    event = payload.get("event")
    found = event.get("user") if isinstance(event, dict) and event.get("type") in MESSAGES else None
    return found if isinstance(found, str) else ""

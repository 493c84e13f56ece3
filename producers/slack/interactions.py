"""Slash commands and pressed buttons: they have no message id of their own, and Slack says their names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from producers.fields import items, name, object_, text
from producers.heard import Heard, Ignored
from producers.slack.known import SlackBot, SlackKnown
from producers.slack.places import chat_type, id_, source, thread_of, timestamp
from shared import choices
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound
from shared.platforms.slack import NAME

_TRIGGER = re.compile(r"[!-~]{1,200}")
_COMMAND = re.compile(r"/[^\s/]{1,32}")
_MANY = "mpdm-"  # how the names of group conversations begin
_DIRECT = "directmessage"
_PRIVATE = "privategroup"  # a private channel, or a group conversation: Slack does not say which


def command(payload: dict[str, Any], bot: SlackBot, known: SlackKnown, received_at: int) -> Heard:
    """A slash command, as if it had been written: `/new` is "/new", and `/ask hello` is "hello". Threads have none."""
    channel, user, word = id_(payload, "channel_id"), id_(payload, "user_id"), text(payload, "command")
    trigger = text(payload, "trigger_id")
    if word is None or not _COMMAND.fullmatch(word):
        raise Malformed("command is not a command")
    if trigger is None or not _TRIGGER.fullmatch(trigger):
        raise Malformed("trigger_id is not an id")
    words = text(payload, "text") or ""
    if not (spoken := (words if word in bot.asks else f"{word} {words}").strip()):
        return Ignored("empty")
    chat_name = name(payload, "channel_name") or ""
    kind = chat_type(channel, _channel_type(chat_name), known)
    said = source(bot, known, channel, kind, user)
    said = replace(said, user_name=said.user_name or name(payload, "user_name"))
    event_id = f"{bot.team}:{channel}:command:{trigger}"
    return Inbound(
        id=message_id(NAME, "", event_id),
        event_id=event_id,
        source=said,
        text=storable(spoken),
        mentioned=True,
        received_at=received_at,
    )


def button(payload: dict[str, Any], bot: SlackBot, known: SlackKnown, received_at: int) -> Heard:
    """A pressed button says its value, under the message that it stands in. One without a value, or outside a chat, is left.

    One of a question's buttons gives its command where the question was asked; no other button gives a command."""
    if payload.get("channel") is None or payload.get("message") is None:
        return Ignored("no chat")
    pressed = next((action for action in items(payload, "actions") if action.get("type") == "button"), None)
    words = text(pressed, "value") if pressed is not None else None
    if pressed is None or words is None or not words.strip():
        return Ignored("no value")
    is_ours = choices.pressed(words) is not None
    if words.lstrip().startswith("/") and not is_ours:
        return Ignored("no button of ours")
    place, person, message = object_(payload, "channel"), object_(payload, "user"), object_(payload, "message")
    channel, user, sent_as = id_(place, "id"), id_(person, "id"), timestamp(message, "ts")
    kind = chat_type(channel, _channel_type(name(place, "name") or ""), known)
    parent = timestamp(message, "thread_ts") if message.get("thread_ts") is not None else None
    in_thread = parent if parent != sent_as else None
    thread = in_thread if is_ours else thread_of(parent, sent_as, kind, bot)
    said = source(bot, known, channel, kind, user, thread)
    said = replace(said, user_name=said.user_name or name(person, "name") or name(person, "username"))
    event_id = f"{bot.team}:{channel}:button:{user}:{timestamp(pressed, 'action_ts')}"
    return Inbound(
        id=message_id(NAME, "", event_id),
        event_id=event_id,
        source=said,
        text=storable(words),
        reply_to=sent_as,
        mentioned=True,
        received_at=received_at,
    )


def _channel_type(chat_name: str) -> str | None:
    """What the name of a chat says about its kind; None: nothing."""
    if chat_name == _DIRECT:
        return "im"
    if chat_name.startswith(_MANY):
        return "mpim"
    return "channel" if chat_name and chat_name != _PRIVATE else None

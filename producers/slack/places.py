"""Where something was said in Slack: channels, their kinds, their threads, and the ids that stand for them."""

from __future__ import annotations

import re
from typing import Any

from producers.fields import text
from producers.slack.known import SlackBot, SlackKnown
from shared.errors import Malformed, Unavailable
from shared.messages import Source
from shared.platforms.slack import NAME, TIMESTAMP

_ID = re.compile(r"[A-Z0-9]{1,40}")
_KINDS = {"im": "dm", "app_home": "dm", "mpim": "group", "channel": "channel", "group": "channel"}


def id_(fields: dict[str, Any], field: str) -> str:
    """An id of Slack's: capitals and digits."""
    value = text(fields, field)
    if value is None or not _ID.fullmatch(value):
        raise Malformed(f"{field} is not an id")
    return value


def timestamp(fields: dict[str, Any], field: str) -> str:
    """The id of a message within its channel, as text: a number would lose its end."""
    value = text(fields, field)
    if value is None or not TIMESTAMP.fullmatch(value):
        raise Malformed(f"{field} is not the id of a message")
    return value


def chat_type(channel: str, channel_type: Any, known: SlackKnown) -> str:
    """The kind of a chat. Mentions do not say it, and of ids only those of direct chats do. Unavailable while Slack has not
    answered what kind it is: a guess could give one chat two conversations."""
    if (said := _KINDS.get(str(channel_type))) is not None:
        return said
    if channel.startswith("D"):
        return "dm"
    if (place := known.places.get(channel)) is None:
        raise Unavailable("Slack has not said yet what kind of chat this is")
    return place.kind


def thread_of(parent: str | None, sent_as: str | None, kind: str, bot: SlackBot) -> str | None:
    """The thread that a message is in; in a channel, the one that our answer opens under it."""
    if parent is not None and parent != sent_as:
        return parent
    return sent_as if bot.opens_threads and kind != "dm" else None


def source(bot: SlackBot, known: SlackKnown, channel: str, kind: str, user: str, thread: str | None = None) -> Source:
    place = known.places.get(channel)
    return Source(
        platform=NAME,
        chat=channel,
        chat_type=kind,
        user=user,
        thread=thread,
        scope=bot.team,
        chat_name=place.name if place is not None else None,
        user_name=known.people.get(user),
        topic=place.topic if place is not None else None,
    )

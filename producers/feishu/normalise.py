"""Step 2 for Feishu: an event becomes an Inbound, or a reason to leave it. Pure; no I/O."""

from __future__ import annotations

from typing import Any

from producers.feishu import old_form
from producers.feishu.buttons import PRESSED, normalise_press
from producers.feishu.content import people, said
from producers.feishu.ids import id_, milliseconds, optional_id
from producers.fields import object_, text
from producers.heard import Heard, Ignored
from shared.codec import message_id
from shared.errors import Malformed
from shared.messages import Inbound, Source
from shared.platforms.feishu import NAME
from shared.value import value

MESSAGE = "im.message.receive_v1"
CHAT_TYPES = {"p2p": "dm", "group": "group", "topic_group": "group"}


@value
class FeishuBot:
    """Who we are there."""

    app_id: str
    open_id: str
    name: str = "bot"


def normalise(payload: dict[str, Any], bot: FeishuBot, received_at: int) -> Heard:
    """What an event is to us. Malformed where something we read is of the wrong kind; fields we do not know are no matter."""
    if payload.get("schema") != "2.0":
        return old_form.normalise(payload, bot.app_id, bot.open_id, received_at)
    header = object_(payload, "header")
    if not isinstance(header.get("event_type"), str):
        raise Malformed("event_type is not text")
    if header["event_type"] not in (MESSAGE, PRESSED):
        return Ignored("kind")
    if header.get("app_id") not in (None, bot.app_id):
        return Ignored("another app's")  # an open id means somebody else there
    if header["event_type"] == PRESSED:
        return normalise_press(payload, received_at)
    event = object_(payload, "event")
    sender, message = object_(event, "sender"), object_(event, "message")
    if text(sender, "sender_type") != "user":
        return Ignored("bot")  # ourselves, or a loop waiting to happen
    person = object_(sender, "sender_id")
    if person.get("open_id") == bot.open_id:
        return Ignored("bot")
    if message.get("message_type") == "system":
        return Ignored("service")
    chat_type = CHAT_TYPES.get(str(message.get("chat_type")))
    if chat_type is None:
        return Ignored("chat type")
    source = Source(
        platform=NAME,
        chat=id_(message, "chat_id"),
        chat_type=chat_type,
        user=id_(person, "open_id"),
        user_alt=optional_id(person, "union_id"),
        thread=optional_id(message, "thread_id"),
        scope=optional_id(header, "tenant_key"),  # the sender's own may be another company's
    )
    return _inbound(message, source, bot, received_at)


def _inbound(message: dict[str, Any], source: Source, bot: FeishuBot, received_at: int) -> Heard:
    sent_as = id_(message, "message_id")
    mentioned = people(message, bot.open_id)
    is_mentioned = any(person.is_us for person in mentioned.values())
    words = said(message, sent_as, mentioned)
    if not words.text and not words.media and not is_mentioned:
        return Ignored("empty")
    return Inbound(
        id=message_id(NAME, source.account, sent_as),
        event_id=sent_as,  # not the event's id: after a reconnection the same message may come with another one
        source=source,
        text=words.text or ("" if words.media else f"@{bot.name}"),  # a bare mention says something too
        media=words.media,
        reply_to=optional_id(message, "parent_id"),
        mentioned=source.chat_type == "dm" or is_mentioned,
        sent_at=milliseconds(message, "create_time"),
        received_at=received_at,
        message=sent_as,
    )


def chat_of(payload: dict[str, Any]) -> str:
    """The chat whose order an event belongs to; empty where it has none."""
    event = payload.get("event")
    message, context = (event.get("message"), event.get("context")) if isinstance(event, dict) else (None, None)
    holders = [(message, "chat_id"), (context, "open_chat_id"), (event, "open_chat_id")]
    found = [holder.get(field) for holder, field in holders if isinstance(holder, dict)]
    return next((chat for chat in found if isinstance(chat, str)), "")

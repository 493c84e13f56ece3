"""Step 2 for Telegram: an update becomes an Inbound, or a reason to leave it. Pure; no I/O."""

from __future__ import annotations

import re
from typing import Any

from producers.fields import flag, items, name, number, object_, text
from producers.heard import Heard, Ignored, Moved
from producers.telegram.attachments import attachments
from producers.telegram.mentions import AddressedText, addressed
from producers.words import contact_in_words, place_in_words, poll_in_words
from shared.choices import pressed
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Source
from shared.platforms.telegram import DIRECT_TOPIC, NAME, PRESSED_KIND, SPOKEN_KINDS
from shared.value import value

_QUERY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_CHAT_TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}


@value
class TelegramMe:
    """Who we are there. The account is empty while there is one bot."""

    id: str
    username: str
    account: str = ""


def normalise(update: dict[str, Any], bot: TelegramMe, received_at: int) -> Heard:
    """What an update is to us. Malformed where something we read is of the wrong kind; fields we do not know are no matter."""
    number(update, "update_id")
    if update.get(PRESSED_KIND) is not None:
        return _pressed(object_(update, PRESSED_KIND), bot, received_at)
    message = next((object_(update, kind) for kind in SPOKEN_KINDS if update.get(kind) is not None), None)
    if message is None:
        return Ignored("kind")
    chat = object_(message, "chat")
    chat_id = str(number(chat, "id"))
    if message.get("migrate_to_chat_id") is not None:
        return Moved(chat_id, str(number(message, "migrate_to_chat_id")), bot.account)
    if message.get("migrate_from_chat_id") is not None:
        return Moved(str(number(message, "migrate_from_chat_id")), chat_id, bot.account)
    chat_type = _CHAT_TYPES.get(str(chat.get("type")))
    if chat_type is None:
        return Ignored("chat type")
    sender = _sender(message, chat_type)
    if sender is None:
        return Ignored("no sender")
    if str(sender.get("id")) == bot.id or flag(sender, "is_bot"):
        return Ignored("bot")  # ourselves, or a loop waiting to happen
    media = attachments(message)
    said = _said(message, bot, is_direct=chat_type == "dm")
    if not said.text and not media:
        return Ignored("service")
    if said.other_bot:
        return Ignored("another bot's")
    source = Source(
        platform=NAME,
        chat=chat_id,
        chat_type=chat_type,
        account=bot.account,
        user=str(number(sender, "id")),
        thread=_thread(message),
        chat_name=_name(chat),
        user_name=_name(sender),
        topic=_topic(message),
    )
    reply, sent_as = _reply(message), str(number(message, "message_id"))
    earlier = _earlier(message, reply, bot) if chat_type != "dm" else None
    # Not the update's id: those start anywhere after a week of silence, and may come to one that was used before.
    event_id = f"{bot.id}:{chat_id}:{sent_as}"
    return Inbound(
        id=message_id(NAME, bot.account, event_id),
        event_id=event_id,
        source=source,
        text=said.text,
        media=media,
        reply_to=str(number(reply, "message_id")) if reply is not None else None,
        mentioned=chat_type == "dm" or said.mentioned or _answers(reply, bot),
        sent_at=number(message, "date") * 1000 if message.get("date") is not None else None,
        received_at=received_at,
        message=sent_as,
        album=text(message, "media_group_id") or None,
        earlier=earlier,
        earlier_by=_id(_sender(reply, "channel")) if earlier is not None and reply is not None else None,
    )


def _pressed(query: dict[str, Any], bot: TelegramMe, received_at: int) -> Heard:
    """A button below a message of ours is the command that it stands for, said where that message is."""
    if (command := pressed(query.get("data"))) is None or query.get("message") is None:
        return Ignored("button")
    message, person = object_(query, "message"), object_(query, "from")
    chat, id = object_(message, "chat"), query_of({PRESSED_KIND: query})
    chat_type = _CHAT_TYPES.get(str(chat.get("type")))
    if chat_type is None or flag(person, "is_bot"):
        return Ignored("button")
    if id is None:
        raise Malformed("id is not an id")
    source = Source(
        platform=NAME,
        chat=str(number(chat, "id")),
        chat_type=chat_type,
        account=bot.account,
        user=str(number(person, "id")),
        thread=_thread(message),
        chat_name=_name(chat),
        user_name=_name(person),
    )
    event_id = f"{bot.id}:button:{id}"
    return Inbound(
        id=message_id(NAME, bot.account, event_id),
        event_id=event_id,
        source=source,
        text=command,
        reply_to=str(number(message, "message_id")),
        received_at=received_at,
    )


def query_of(update: dict[str, Any]) -> str | None:
    """The id by which Telegram is told that a pressed button was heard; None where the update is of no button."""
    query = update.get(PRESSED_KIND)
    id = query.get("id") if isinstance(query, dict) else None
    return id if isinstance(id, str) and _QUERY_ID.fullmatch(id) else None


def chat_of(update: dict[str, Any]) -> str:
    """The chat whose order an update belongs to; empty where it has none."""
    query = update.get(PRESSED_KIND)
    below = query.get("message") if isinstance(query, dict) else None
    found: tuple[Any, ...] = (*(update.get(kind) for kind in SPOKEN_KINDS), below)
    for message in found:
        try:
            return str(message["chat"]["id"])
        except (KeyError, TypeError):
            continue
    return ""


def _sender(message: dict[str, Any], chat_type: str) -> dict[str, Any] | None:
    """A person or, for anonymous admins and channels, the chat that speaks: then `from` is a placeholder, and a bot."""
    if message.get("sender_chat") is not None:
        return object_(message, "sender_chat")
    if message.get("from") is not None:
        return object_(message, "from")
    return object_(message, "chat") if chat_type == "channel" else None


def _said(message: dict[str, Any], bot: TelegramMe, *, is_direct: bool) -> AddressedText:
    for words, entities in (("text", "entities"), ("caption", "caption_entities")):
        if said := text(message, words):
            return addressed(said, items(message, entities), bot.id, bot.username, is_direct=is_direct)
    return AddressedText(storable(_in_words(message)))


def _in_words(message: dict[str, Any]) -> str:
    """A place, a contact or a poll; empty where the message is none of these."""
    if message.get("venue") is not None:  # a location stands beside it, for old bots
        venue = object_(message, "venue")
        return place_in_words(object_(venue, "location"), [name(venue, "title"), name(venue, "address")])
    if message.get("location") is not None:
        return place_in_words(object_(message, "location"))
    if message.get("contact") is not None:
        contact = object_(message, "contact")
        return contact_in_words(_name(contact), [name(contact, "phone_number")])
    if message.get("poll") is not None:
        poll = object_(message, "poll")
        return poll_in_words(poll, items(poll, "options"))
    return ""


def _thread(message: dict[str, Any]) -> str | None:
    """A topic. Reply chains of ordinary groups carry a thread id as well, and must not split the conversation."""
    if message.get("direct_messages_topic") is not None:
        return f"{DIRECT_TOPIC}{number(object_(message, 'direct_messages_topic'), 'topic_id')}"
    if flag(message, "is_topic_message") and message.get("message_thread_id") is not None:
        return str(number(message, "message_thread_id"))
    return None


def _reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message that this one answers. In a topic, what answers nothing points at the topic's first, a service message."""
    if message.get("reply_to_message") is None:
        return None
    reply = object_(message, "reply_to_message")
    opens_topic = flag(message, "is_topic_message") and reply.get("message_id") == message.get("message_thread_id")
    return None if opens_topic or "forum_topic_created" in reply else reply


def _topic(message: dict[str, Any]) -> str | None:
    """The topic's name, where the message happens to carry it."""
    if "reply_to_message" not in message:
        return None
    try:
        return (name(message["reply_to_message"]["forum_topic_created"], "name") or "").strip() or None
    except (KeyError, TypeError, AttributeError, Malformed):
        return None


def _answers(reply: dict[str, Any] | None, bot: TelegramMe) -> bool:
    return reply is not None and reply.get("from") is not None and str(object_(reply, "from").get("id")) == bot.id


def _earlier(message: dict[str, Any], reply: dict[str, Any] | None, bot: TelegramMe) -> str | None:
    """What others said that this message answers: no conversation with the bot has it. What was quoted of it, if it was."""
    if reply is None or _answers(reply, bot):
        return None
    quote = text(object_(message, "quote"), "text") if message.get("quote") is not None else None
    said = quote or text(reply, "text") or text(reply, "caption")
    who = _sender(reply, "channel")
    return storable(f"{_name(who) or 'someone'}: {said}") if said and who is not None else None


def _id(sender: dict[str, Any] | None) -> str | None:
    return str(number(sender, "id")) if sender is not None and sender.get("id") is not None else None


def _name(fields: dict[str, Any]) -> str | None:
    parts = [name(fields, part) for part in ("title", "first_name", "last_name") if part in fields]
    return " ".join([part for part in parts if part]) or name(fields, "username")

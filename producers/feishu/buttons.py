"""A pressed button of a card becomes the command that could be typed. Pure; no I/O.

Feishu does not say in what kind of chat a card is, nor in which thread: the button's own value does, as our sender wrote it. In
another chat than that, such as one that the card was forwarded to, the button says nothing.
"""

from __future__ import annotations

from typing import Any

from producers.feishu.ids import id_, optional_id
from producers.fields import object_
from producers.heard import Heard, Ignored
from shared.choices import pressed
from shared.codec import message_id
from shared.messages import Inbound, Source
from shared.platforms.feishu import NAME

PRESSED = "card.action.trigger"
_CHAT_TYPES = ("dm", "group")


def normalise_press(payload: dict[str, Any], received_at: int) -> Heard:
    """What a press says. Malformed where something we read is of the wrong kind."""
    header, event = object_(payload, "header"), object_(payload, "event")
    action = object_(event, "action")
    value = action.get("value")
    if not isinstance(value, dict) or (command := pressed(value.get("command"))) is None:
        return Ignored("button")
    person, place = object_(event, "operator"), object_(event, "context")
    chat, chat_type = id_(place, "open_chat_id"), str(value.get("chat_type"))
    if value.get("chat") != chat or chat_type not in _CHAT_TYPES:
        return Ignored("button")
    source = Source(
        platform=NAME,
        chat=chat,
        chat_type=chat_type,
        user=id_(person, "open_id"),
        user_alt=optional_id(person, "union_id"),
        thread=optional_id(value, "thread"),
        scope=optional_id(header, "tenant_key"),
    )
    event_id = f"button:{id_(header, 'event_id')}"
    return Inbound(
        id=message_id(NAME, "", event_id),
        event_id=event_id,
        source=source,
        text=command,
        reply_to=id_(place, "open_message_id"),
        received_at=received_at,
    )

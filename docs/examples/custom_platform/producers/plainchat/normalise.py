"""Step 2 for Plainchat: an event becomes an Inbound. Pure; no I/O."""

from __future__ import annotations

from typing import Any

from producers import fields
from producers.heard import Heard, Ignored
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Source
from shared.platforms.plainchat import NAME


def normalise(event: dict[str, Any], received_at: int) -> Heard:
    """The Inbound of a message; other events, and what bots say, are ignored."""
    if event.get("event") != "message":
        return Ignored("no message")
    user = fields.object_(event, "user")
    if fields.flag(user, "bot"):
        return Ignored("a bot's message")
    id, text = _id(event, "id"), fields.text(event, "text")
    if text is None:
        return Ignored("nothing said")
    source = Source(
        platform=NAME,
        chat=_id(event, "room"),
        chat_type="dm" if fields.flag(event, "private") else "group",
        user=_id(user, "id"),
        user_name=fields.name(user, "name"),
    )
    return Inbound(
        id=message_id(NAME, "", id),
        event_id=id,
        source=source,
        text=storable(text),
        mentioned=fields.flag(event, "mentioned"),
        received_at=received_at,
        message=id,
    )


def _id(event: dict[str, Any], field: str) -> str:
    value = event.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isprintable():
        raise Malformed(f"{field} is not an id")
    return value

"""What a WhatsApp message says: words, files by reference, and other things in words."""

from __future__ import annotations

from typing import Any

from producers.fields import items, name, object_, text
from producers.heard import Ignored
from producers.words import contact_in_words, place_in_words
from shared.choices import pressed
from shared.codec import storable
from shared.errors import Malformed
from shared.messages import Media
from shared.platforms.whatsapp import FILE_SCHEME
from shared.value import value

_FILES = {
    "image": "image/jpeg",
    "video": "video/mp4",
    "audio": "audio/ogg",
    "document": "application/octet-stream",
    "sticker": "image/webp",
}
_LEFT = frozenset({"reaction", "edit", "revoke", "unsupported"})


@value
class Content:
    """What one message says: text, files, or both."""

    text: str = ""
    media: tuple[Media, ...] = ()


def content_of(message: dict[str, Any]) -> Content | Ignored:
    """What a message says, or why there is nothing to answer. Malformed where something is of the wrong kind."""
    kind = text(message, "type") or ""
    if kind in _FILES:
        file = object_(message, kind)
        return Content(storable(text(file, "caption") or ""), (_media(file, _FILES[kind]),))
    if kind == "text":
        return _said(text(object_(message, "text"), "body"))
    if kind == "button":
        return _said(text(object_(message, "button"), "text"))
    if kind == "interactive":
        return _chosen(object_(message, "interactive"))
    if kind == "location":
        return _said(_location(object_(message, "location")))
    if kind == "contacts":
        return _said("\n".join(_contact(contact) for contact in items(message, "contacts")))
    if kind == "order":
        return _said(_order(object_(message, "order")))
    return Ignored(kind if kind in _LEFT else "kind")


def _said(words: str | None) -> Content | Ignored:
    return Content(storable(words)) if words else Ignored("nothing said")


def _chosen(interactive: dict[str, Any]) -> Content | Ignored:
    """The command of a question's button, or the words on any other button or in the list that were chosen."""
    reply = interactive.get("button_reply")
    if isinstance(reply, dict) and (command := pressed(reply.get("id"))) is not None:
        return Content(command)
    for kind in ("button_reply", "list_reply"):
        if interactive.get(kind) is not None:
            return _said(text(object_(interactive, kind), "title"))
    return Ignored("kind")


def _media(file: dict[str, Any], usual_type: str) -> Media:
    id = text(file, "id")
    if id is None or len(id) > 256 or not id.isascii() or not id.isprintable():
        raise Malformed("id is not the id of a file")
    return Media(FILE_SCHEME + id, name(file, "mime_type") or usual_type, name(file, "filename"))


def _location(location: dict[str, Any]) -> str:
    return place_in_words(location, [name(location, "name"), name(location, "address")])


def _contact(contact: dict[str, Any]) -> str:
    called = name(object_(contact, "name"), "formatted_name") if contact.get("name") is not None else None
    ways = [name(phone, "phone") for phone in items(contact, "phones")]
    return contact_in_words(called, ways + [name(email, "email") for email in items(contact, "emails")])


def _order(order: dict[str, Any]) -> str:
    lines = [f"{_amount(item)} × {name(item, 'product_retailer_id')}" for item in items(order, "product_items")]
    return "\n".join([f"Order: {', '.join(lines)}", *([words] if (words := text(order, "text")) else [])])


def _amount(item: dict[str, Any]) -> str:
    amount = item.get("quantity")
    if type(amount) not in (int, str) or len(str(amount)) > 20:
        raise Malformed("quantity is not a number")
    return str(amount)

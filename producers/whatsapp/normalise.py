"""Step 2 for WhatsApp: a message becomes an Inbound, or a reason to leave it; a status may tell of a failure. Pure; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from producers.fields import items, name, object_, text
from producers.heard import Heard, Ignored, Undelivered
from producers.whatsapp.contents import content_of
from shared.codec import message_id
from shared.errors import Malformed
from shared.messages import Inbound, Source
from shared.platforms.whatsapp import GROUP, NAME, part_of
from shared.platforms.whatsapp_api import CLOSED, reason_of
from shared.value import value

_NEW_ID = ("user_changed_number", "user_changed_user_id")
_NOT_DIGITS = re.compile(r"[^0-9]")
_SECONDS = re.compile(r"[0-9]{1,12}")


@value
class _WhatsappPerson:
    """Who wrote. `scoped` is Meta's id of the person for this business: it is all there is of one who hides their number."""

    number: str | None
    scoped: str | None
    name: str | None


def normalise(fields: dict[str, Any], accounts: Mapping[str, str], received_at: int) -> Heard:
    """What an event is to us. `accounts` are our accounts by the ids of their phone numbers. Malformed where something we
    read is of the wrong kind; fields we do not know are no matter."""
    if "message" not in fields and "status" not in fields:
        return Ignored("field")
    shared = object_(fields, "value")
    metadata = object_(shared, "metadata")
    account = accounts.get(_id(metadata, "phone_number_id") or "")
    if account is None:
        return Ignored("another number")
    if "status" in fields:
        return _status(object_(fields, "status"), account)
    return _message(object_(fields, "message"), shared, account, received_at)


def _message(message: dict[str, Any], shared: dict[str, Any], account: str, received_at: int) -> Heard:
    id = _id(message, "id")
    if id is None:
        raise Malformed("id is missing")
    if message.get("type") == "system":
        return _system(message)
    person = _person(message, shared)
    own = _digits(text(object_(shared, "metadata"), "display_phone_number"))
    if person.number is not None and own and person.number == own:
        return Ignored("own message")
    user = person.number or person.scoped
    if user is None:
        return Ignored("no sender")
    content = content_of(message)
    if isinstance(content, Ignored):
        return content
    group = _id(message, "group_id")
    context = object_(message, "context") if message.get("context") is not None else {}
    called, said = _called(content.text, own) if group else (False, content.text)
    answers_us = bool(own) and _digits(text(context, "from")) == own
    return Inbound(
        id=message_id(NAME, account, id),
        event_id=id,
        source=Source(
            platform=NAME,
            chat=f"{GROUP}{group}" if group else user,
            chat_type="group" if group else "dm",
            account=account,
            user=user,
            user_alt=person.scoped,
            chat_name=None if group else person.name,
            user_name=person.name,
        ),
        text=said,
        media=content.media,
        reply_to=_id(context, "id"),
        mentioned=group is None or called or answers_us,
        sent_at=_sent_at(message),
        received_at=received_at,
        message=id,
    )


def _person(message: dict[str, Any], shared: dict[str, Any]) -> _WhatsappPerson:
    """The person's ids from the message, the rest from the entry in the list of contacts that has the same id."""
    number, scoped = _id(message, "from"), _id(message, "from_user_id")
    contacts = items(shared, "contacts")
    known = [contact for contact in contacts if _matches(contact, number, scoped)]
    if not known and number is None and scoped is None and len(contacts) == 1:
        known = contacts
    contact = known[0] if known else {}
    profile = object_(contact, "profile") if contact.get("profile") is not None else {}
    return _WhatsappPerson(number or _id(contact, "wa_id"), scoped or _id(contact, "user_id"), name(profile, "name"))


def _matches(contact: dict[str, Any], number: str | None, scoped: str | None) -> bool:
    return (number is not None and contact.get("wa_id") == number) or (
        scoped is not None and contact.get("user_id") == scoped
    )


def _system(message: dict[str, Any]) -> Ignored:
    """A person's new number or scoped id begins a new conversation: the old number may be given to somebody else, who would
    enter the conversation if the old number and the new one shared it."""
    return Ignored("new id" if text(object_(message, "system"), "type") in _NEW_ID else "system")


def _status(status: dict[str, Any], account: str) -> Heard:
    """Sent, delivered and read are good news that nobody waits for; a failure is the last word on a reply."""
    if text(status, "status") != "failed":
        return Ignored("status")
    codes = [code for error in items(status, "errors") if type(code := error.get("code")) is int]
    reasons = "; ".join(map(reason_of, codes)) or "no reason given"
    part, digest = part_of(text(status, "biz_opaque_callback_data"))
    return Undelivered(_id(status, "id") or "", reasons, account, part, digest, not CLOSED.isdisjoint(codes))


def _called(said: str, own: str) -> tuple[bool, str]:
    """Whether a text names our number after an @, and the text without it where it begins so."""
    if not own or not re.search(rf"@\+?{own}(?![0-9])", said):
        return False, said
    rest = re.sub(rf"^\s*@\+?{own}(?![0-9])[ ,:\n]*", "", said)
    return True, rest or said


def _sent_at(message: dict[str, Any]) -> int | None:
    said = text(message, "timestamp")
    if said is None:
        return None
    if not _SECONDS.fullmatch(said):
        raise Malformed("timestamp is not a number of seconds")
    return int(said) * 1000


def _id(fields: dict[str, Any], field: str) -> str | None:
    found = text(fields, field)
    if found is not None and (len(found) > 256 or not found.isascii() or not found.isprintable()):
        raise Malformed(f"{field} is not an id")
    return found


def _digits(number: str | None) -> str:
    return number if number is not None and number.isascii() and number.isdigit() else _NOT_DIGITS.sub("", number or "")

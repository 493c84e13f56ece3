"""Step 2 for Signal: an envelope becomes an Inbound, or a reason to leave it. Pure; no I/O."""

from __future__ import annotations

from typing import Any

from producers.fields import flag, items, name, number, object_, text
from producers.heard import Heard, Ignored
from producers.signal.mentions import SignalAccount, SignalSaid, addressed
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Media, Source
from shared.platforms.signal import FILE_SCHEME, GROUP, NAME, is_id
from shared.value import value

_OTHERS = ("editMessage", "syncMessage", "receiptMessage", "typingMessage", "callMessage", "storyMessage")
_NO_MESSAGES = ("reaction", "remoteDelete", "pollCreate", "pollVote", "pollTerminate", "pinMessage", "unpinMessage")


@value
class _SignalPerson:
    """Who wrote. The uuid stays when the number changes or is hidden."""

    number: str | None
    uuid: str | None
    name: str | None

    @property
    def id(self) -> str:
        found = self.uuid or self.number
        assert found is not None
        return found


def normalise(fields: dict[str, Any], me: SignalAccount, received_at: int) -> Heard:
    """What an event is to us. Malformed where something we read is of the wrong kind; fields we do not know are no matter."""
    envelope = object_(fields, "envelope")
    account = text(fields, "account")
    if account is not None and not me.is_me(account):
        return Ignored("another account")
    person = _person(envelope)
    if person is None:
        return Ignored("no sender")
    if me.is_me(person.number, person.uuid):
        return Ignored("own message")
    if envelope.get("dataMessage") is None:
        return Ignored(next((kind for kind in _OTHERS if envelope.get(kind) is not None), "nothing said"))
    return _message(object_(envelope, "dataMessage"), envelope, person, me, received_at)


def _message(
    data: dict[str, Any], envelope: dict[str, Any], person: _SignalPerson, me: SignalAccount, received_at: int
) -> Heard:
    left = next((kind for kind in _NO_MESSAGES if data.get(kind) is not None), None)
    if left is not None or flag(data, "isExpirationUpdate"):
        return Ignored(left or "isExpirationUpdate")
    sent_at = number(data if data.get("timestamp") is not None else envelope, "timestamp")
    said = addressed(text(data, "message") or "", items(data, "mentions"), me)
    media = tuple(_media(attachment) for attachment in items(data, "attachments"))
    if not said.text.strip() and not media:
        return Ignored("nothing said")
    group = object_(data, "groupInfo") if data.get("groupInfo") is not None else None
    quote = object_(data, "quote") if data.get("quote") is not None else None
    earlier = _earlier(quote, me) if group is not None else None
    event_id = f"{person.id}:{sent_at}"
    return Inbound(
        id=message_id(NAME, "", event_id),
        event_id=event_id,
        source=_source(person, group),
        text=said.text,
        media=media,
        reply_to=_pointer(number(quote, "id"), _author(quote)) if quote is not None else None,
        mentioned=group is None or _is_for(said, quote, me),
        sent_at=sent_at,
        received_at=received_at,
        message=_pointer(sent_at, person.id),
        earlier=earlier,
        earlier_by=(_author(quote) or None) if earlier is not None and quote is not None else None,
    )


def _source(person: _SignalPerson, group: dict[str, Any] | None) -> Source:
    return Source(
        platform=NAME,
        chat=f"{GROUP}{_group_id(group)}" if group is not None else person.id,
        chat_type="group" if group is not None else "dm",
        user=person.number or person.uuid,
        user_alt=person.uuid,
        chat_name=name(group, "groupName") if group is not None else person.name,
        user_name=person.name,
    )


def _person(envelope: dict[str, Any]) -> _SignalPerson | None:
    """Older daemons have `source` alone: a number or a uuid."""
    found = [id for field in ("sourceNumber", "sourceUuid", "source") if (id := _id(envelope, field)) is not None]
    numbers, uuids = [id for id in found if id.startswith("+")], [id for id in found if not id.startswith("+")]
    if not found:
        return None
    return _SignalPerson(next(iter(numbers), None), next(iter(uuids), None), name(envelope, "sourceName"))


def _is_for(said: SignalSaid, quote: dict[str, Any] | None, me: SignalAccount) -> bool:
    return said.mentioned or (quote is not None and me.is_me(*_authors(quote)))


def _authors(quote: dict[str, Any]) -> list[str | None]:
    return [_id(quote, field) for field in ("authorUuid", "authorNumber", "author")]


def _author(quote: dict[str, Any]) -> str:
    return next((id for id in _authors(quote) if id is not None), "")


def _earlier(quote: dict[str, Any] | None, me: SignalAccount) -> str | None:
    """What others said that this message answers: no conversation with the bot has it. Their number is nobody's business."""
    if quote is None or me.is_me(*_authors(quote)) or (said := text(quote, "text")) is None:
        return None
    return storable(f"someone: {said}")


def _media(attachment: dict[str, Any]) -> Media:
    id = text(attachment, "id")
    if id is None or len(id) > 256 or not id.isascii() or not id.isprintable():
        raise Malformed("id is not the id of a file")
    return Media(FILE_SCHEME + id, name(attachment, "contentType"), name(attachment, "filename"))


def _group_id(group: dict[str, Any]) -> str:
    id = text(group, "groupId")
    if id is None or len(id) > 200 or not id.isascii() or not id.isprintable():
        raise Malformed("groupId is not an id")
    return id


def _id(fields: dict[str, Any], field: str) -> str | None:
    found = text(fields, field)
    if found is not None and not is_id(found):
        raise Malformed(f"{field} is not an id")
    return found


def _pointer(sent_at: int, author: str) -> str:
    """A message is known by its time and its author."""
    return f"{sent_at}:{author}"

"""What a piece of mail says: one value per kind, and the only place that tells the kinds apart.

| kind      | record                         | put into a mailbox by                  |
|-----------|--------------------------------|----------------------------------------|
| Inbound   | `{"v":1,"inbound":{…}}`        | the door, when somebody said something |
| TakeNotes | `{"flush":"<session>","v":1}`  | the memory watch, for a session that is over; older ones have no `v` |

The journal and dead letters hold inbounds in the same form. Fields that only a later version knows are ignored.
"""

from __future__ import annotations

from typing import Any

import orjson

from shared.codec import check_fields, decode_media, decode_source, encode_json, from_fields
from shared.errors import Malformed
from shared.messages import Inbound
from shared.value import value

INBOUND_VERSION, TAKE_NOTES_VERSION = 1, 1


@value
class TakeNotes:
    """Look back at a session that is over, and keep what is worth remembering."""

    session_id: str


Content = Inbound | TakeNotes


def encode_mail(content: Content) -> bytes:
    """The record of one piece of mail; Malformed for text that is not Unicode, such as half a surrogate pair.

    Equal notes to take have equal records, so a mailbox holds them once.
    """
    if isinstance(content, TakeNotes):
        return encode_json({"flush": content.session_id, "v": TAKE_NOTES_VERSION})
    return encode_json({"v": INBOUND_VERSION, "inbound": content})


def decode_mail(record: bytes | str) -> Content:
    """What a record says; Malformed, with the reason, for garbage and for versions from the future."""
    try:
        fields = orjson.loads(record)
    except orjson.JSONDecodeError:
        raise Malformed("not mail: not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("not mail: not an object")
    if "inbound" in fields:
        _check_version(fields.get("v"), INBOUND_VERSION)
        return _inbound(fields["inbound"])
    if "flush" in fields:
        _check_version(fields.get("v", 1), TAKE_NOTES_VERSION)
        return _take_notes(fields["flush"])
    raise Malformed("not mail: no kind that is known")


def decode_inbound(record: bytes | str) -> Inbound:
    """The inbound in a record of the journal or of a dead letter; Malformed for anything else."""
    content = decode_mail(record)
    if not isinstance(content, Inbound):
        raise Malformed("not an inbound: another kind of mail")
    return content


def _check_version(version: Any, known: int) -> None:
    if type(version) is not int or version != known:
        raise Malformed(f"wire version {version!r:.20} is not known")


def _inbound(found: Any) -> Inbound:
    try:
        fields = dict(found)
        fields["source"], fields["media"] = decode_source(fields["source"]), decode_media(fields["media"])
        inbound = from_fields(Inbound, fields)
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not an inbound: {type(error).__name__}") from None
    check_fields(inbound, "inbound", _INBOUND)
    return inbound


def _take_notes(session_id: Any) -> TakeNotes:
    if not isinstance(session_id, str):
        raise Malformed("notes to take: the session is no text")
    return TakeNotes(session_id)


_TEXT, _MAYBE_TEXT = (str,), (str, type(None))
_INBOUND: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "event_id", "text"), _TEXT),
    **dict.fromkeys(("reply_to", "message", "album", "earlier"), _MAYBE_TEXT),
    "mentioned": (bool,),
    "sent_at": (int, type(None)),
    "received_at": (int,),
}

"""What a piece of mail says: one value per kind, and the only place that tells the kinds apart.

| kind      | record                         | put into a mailbox by                  |
|-----------|--------------------------------|----------------------------------------|
| Inbound   | `{"v":1,"inbound":{…}}`        | the door, when somebody said something |
| the same with terms | `{"v":1,"asked":{…}}` | the door; a kind of its own, because older workers would leave the terms out |
| OwnInbound | `{"v":1,"own":{…}}`           | the door, for an announcement; a housekeeper, when a schedule is due |
| the same of the kind EXPIRY | `{"v":1,"expiry":{…}}` | a housekeeper, when the time of a question is over |
| TaskInbound | `{"v":1,"task":{…}}`         | the door, for background work and its results |
| TakeNotes | `{"flush":"<session>","v":1}`  | the memory watch, for a session that is over; older ones have no `v` |

The journal and dead letters hold inbounds in the same form.

Processes of two versions share these records during a rolling update. Four rules make that safe:

- A field that a reader does not know is ignored. So a field may be added without a new version, if old readers may miss it.
- A field that is missing has its default. So records leave out what is at its default: 536 bytes became 389 for 80 characters.
- `v` is the version of the kind. It is raised when old readers would misunderstand the record. Every reader reads all
  versions up to its own.
- A newer version or a newer kind is TooNew: the key is left to newer workers. Anything else that is no record is Malformed.
"""

from __future__ import annotations

from dataclasses import MISSING, replace
from dataclasses import fields as fields_of
from typing import Any, TypeVar

import orjson

from shared.codec import ROW, check_version, decode_media, decode_source, encode_json, from_fields, source_fields
from shared.errors import Malformed, TooNew
from shared.field_types import MAYBE_TEXT, TEXT, FieldTypes, of_type
from shared.messages import Entry, Inbound, Kind, OwnInbound, TaskInbound, Terms
from shared.value import value

INBOUND_VERSION, TAKE_NOTES_VERSION, ASKED_VERSION, OWN_VERSION, EXPIRY_VERSION, TASK_VERSION = 1, 1, 1, 1, 1, 1
_ALWAYS = ("media", "purpose", "asked_by")  # in every record: readers from before ask for them


def _defaults(kind: type[Inbound]) -> tuple[tuple[str, object], ...]:
    """The fields of a kind, each with the value that is left out of its record."""
    return tuple((field.name, MISSING if field.name in _ALWAYS else field.default) for field in fields_of(kind))


_INBOUND_DEFAULTS, _OWN_DEFAULTS, _TASK_DEFAULTS = map(_defaults, (Inbound, OwnInbound, TaskInbound))


@value
class TakeNotes:
    """Look back at a session that is over, and keep what is worth remembering."""

    session_id: str


Content = Inbound | TakeNotes
AnyInbound = TypeVar("AnyInbound", bound=Inbound)
AnyOwnInbound = TypeVar("AnyOwnInbound", bound=OwnInbound)


def encode_mail(content: Content) -> bytes:
    """The record of one piece of mail; Malformed for text that is not Unicode, such as half a surrogate pair.

    Equal notes to take have equal records, so a mailbox holds them once.
    """
    if isinstance(content, TakeNotes):
        return encode_json({"flush": content.session_id, "v": TAKE_NOTES_VERSION})
    if isinstance(content, TaskInbound):
        return encode_json({"v": TASK_VERSION, "task": _fields(content, _TASK_DEFAULTS)})
    if isinstance(content, OwnInbound):  # under a name of its own: who does not know it must not answer it
        fields = _fields(content, _OWN_DEFAULTS)
        if content.kind is Kind.EXPIRY:
            return encode_json({"v": EXPIRY_VERSION, "expiry": fields})
        return encode_json({"v": OWN_VERSION, "own": fields})
    if content.terms is not None:
        return encode_json({"v": ASKED_VERSION, "asked": _fields(content, _INBOUND_DEFAULTS)})
    return encode_json({"v": INBOUND_VERSION, "inbound": _fields(content, _INBOUND_DEFAULTS)})


def _fields(content: Inbound, defaults: tuple[tuple[str, object], ...]) -> dict[str, Any]:
    """What the content says: fields at their default are left out, and a reader fills them in."""
    fields = {name: found for name, default in defaults if (found := getattr(content, name)) != default}
    fields["source"] = source_fields(content.source)
    return fields


def decode_mail(record: bytes | str) -> Content:
    """What a record says; TooNew for a version or a kind that only a newer process knows, Malformed for garbage. Both with
    the reason."""
    try:
        fields = orjson.loads(record)
    except orjson.JSONDecodeError:
        raise Malformed("not mail: not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("not mail: not an object")
    if "inbound" in fields:
        check_version("an inbound", fields.get("v"), INBOUND_VERSION)
        return _inbound(Inbound, fields["inbound"])
    if "asked" in fields:
        check_version("a message with terms", fields.get("v"), ASKED_VERSION)
        return _inbound(Inbound, fields["asked"])
    if "own" in fields:
        check_version("an inbound of ours", fields.get("v"), OWN_VERSION)
        return _own_inbound(OwnInbound, fields["own"])
    if "expiry" in fields:
        check_version("the end of a question", fields.get("v"), EXPIRY_VERSION)
        return _own_inbound(OwnInbound, fields["expiry"])
    if "task" in fields:
        check_version("background work", fields.get("v"), TASK_VERSION)
        return _task_inbound(fields["task"])
    if "flush" in fields:
        check_version("notes to take", fields.get("v", 1), TAKE_NOTES_VERSION)
        return _take_notes(fields["flush"])
    kind = next((name for name in fields if name != "v"), None)
    if kind is None or type(fields.get("v")) is not int:
        raise Malformed("not mail: no kind, or no version")
    raise TooNew(f"mail of the kind {kind!r:.40}, which this process does not know")


def decode_inbound(record: bytes | str) -> Inbound:
    """The inbound in a record of the journal or of a dead letter; TooNew and Malformed as for mail."""
    content = decode_mail(record)
    if not isinstance(content, Inbound):
        raise Malformed("not an inbound: another kind of mail")
    return content


def _inbound(kind: type[AnyInbound], found: Any) -> AnyInbound:
    try:
        fields = dict(found)
        fields["source"], fields["media"] = decode_source(fields["source"]), decode_media(fields["media"])
        fields["terms"] = _terms(fields.get("terms"))
        inbound = from_fields(kind, fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not an inbound: {type(error).__name__}") from None
    _INBOUND.check(inbound, "inbound")
    return inbound


def _terms(found: Any) -> Terms | None:
    if found is None:
        return None
    history = found["history"]
    entries = None if history is None else tuple([from_fields(Entry, entry) for entry in history])
    terms = from_fields(Terms, {**found, "history": entries, "said_before": tuple(found["said_before"])})
    _TERMS.check(terms, "terms")
    for entry in entries or ():
        ROW.check(entry, "row")
    if not all(isinstance(text, str) for text in terms.said_before):
        raise Malformed("terms.said_before is of the wrong kind")
    return terms


def _own_inbound(kind: type[AnyOwnInbound], found: Any) -> AnyOwnInbound:
    inbound = _inbound(kind, found)
    _OWN.check(inbound, "inbound")
    try:
        return replace(inbound, purpose=Kind(inbound.purpose))
    except ValueError:
        raise Malformed("not an inbound of ours: no such purpose") from None


def _task_inbound(found: Any) -> TaskInbound:
    try:
        asked_by = found["asked_by"]
        fields = {**found, "asked_by": decode_source(asked_by) if asked_by is not None else None}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not background work: {type(error).__name__}") from None
    return _own_inbound(TaskInbound, fields)


def _take_notes(session_id: Any) -> TakeNotes:
    if not isinstance(session_id, str):
        raise Malformed("notes to take: the session is no text")
    return TakeNotes(session_id)


_INBOUND = FieldTypes(
    of_type(TEXT, "id", "event_id", "text")
    + of_type(MAYBE_TEXT, "reply_to", "message", "album", "earlier", "earlier_by", "trace")
    + [("mentioned", (bool,)), ("sent_at", (int, type(None))), ("received_at", (int,))]
)
_TERMS = FieldTypes([*of_type(TEXT, "agent", "instructions"), ("is_watched", (bool,))])
_OWN = FieldTypes(of_type(TEXT, "purpose") + of_type(MAYBE_TEXT, "owned_by"))

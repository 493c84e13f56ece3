"""Values to JSON and back; shared/mail.py has the records of mail. What cannot be read is Malformed, never a crash."""

from __future__ import annotations

from dataclasses import fields as fields_of
from hashlib import blake2b
from typing import Any, TypeVar

import orjson

from shared.address import Address
from shared.errors import Malformed, TooNew
from shared.field_types import MAYBE_TEXT, TEXT, FieldTypes, of_type
from shared.messages import Media, Source

T = TypeVar("T")


class Serializer:
    """What RQ writes with: JSON by orjson, so that nothing read from Redis is ever unpickled."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        return orjson.dumps(value)

    @staticmethod
    def loads(data: bytes) -> Any:
        return orjson.loads(data)


def message_id(platform: str, account: str, event_id: str) -> str:
    """The id of the inbound that this platform event becomes, however often it is delivered."""
    digest = blake2b(encode_json([platform, account, event_id]), digest_size=15)
    return f"in_{digest.hexdigest()}"


def storable(text: str) -> str:
    """The text as every database can keep it: without NUL characters and halves of surrogate pairs."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():  # known without a look at it
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encode_text(value: Any) -> str:
    """JSON for a text column; dataclasses become objects."""
    return encode_json(value).decode()


def source_fields(source: Source) -> dict[str, Any]:
    """The fields of a source that say something. A reader, also an older one, fills in the others as Source has them."""
    return {name: found for name, default in _SOURCE_DEFAULTS if (found := getattr(source, name)) != default}


def decode_source(fields: Any) -> Source:
    """The source in a decoded record; Malformed where a field is missing or of the wrong kind."""
    try:
        source = from_fields(Source, fields)
    except (TypeError, AttributeError):
        raise Malformed("the source is no object, or a field is missing") from None
    _SOURCE.check(source, "source")
    return source


def decode_address(fields: Any) -> Address | None:
    """The address in a decoded record, if there is one; Malformed where it is something else."""
    if fields is None:
        return None
    try:
        address = from_fields(Address, fields)
    except (TypeError, AttributeError):
        raise Malformed("the address is no object, or a field is missing") from None
    _ADDRESS.check(address, "address")
    return address


def decode_media(items: Any) -> tuple[Media, ...]:
    """The media in a decoded record; Malformed where they are something else."""
    try:
        media = tuple(from_fields(Media, item) for item in items)
    except (TypeError, AttributeError):
        raise Malformed("media is no list of objects, or a field is missing") from None
    for item in media:
        _MEDIA.check(item, "media")
    return media


_SOURCE_DEFAULTS = tuple((field.name, field.default) for field in fields_of(Source))
_SOURCE = FieldTypes(
    of_type(TEXT, "platform", "chat", "chat_type", "account")
    + of_type(MAYBE_TEXT, "user", "user_alt", "thread", "scope", "chat_name", "user_name", "topic")
)
_ADDRESS = FieldTypes(of_type(TEXT, "platform", "account", "chat") + of_type(MAYBE_TEXT, "thread"))
_MEDIA = FieldTypes(of_type(TEXT, "url") + of_type(MAYBE_TEXT, "type", "name"))
ROW = FieldTypes([*of_type(TEXT, "role", "text"), ("data", (dict,))])  # of a transcript: an Entry


def from_fields(kind: type[T], fields: dict[str, Any]) -> T:
    """The value with these fields; TypeError where one is missing. Fields that only a later version knows are ignored:
    during a rolling deployment its receivers write what our workers read."""
    try:
        return kind(**fields)
    except TypeError:
        known: dict[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
        return kind(**{name: value for name, value in fields.items() if name in known})


def check_version(what: str, version: Any, known: int) -> None:
    """TooNew for a version beyond the known ones, Malformed for what is no version."""
    if type(version) is not int or version < 1:
        raise Malformed(f"{what} has no version: wire version {version!r:.20}")
    if version > known:
        raise TooNew(f"{what} has wire version {version}: this process reads up to {known}")


def encode_json(value: Any) -> bytes:
    """The value as JSON; dataclasses become objects. Malformed for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Malformed(f"cannot be written as JSON: {error!s:.80}") from None

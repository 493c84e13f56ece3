"""Values to bytes and back. Every record carries the wire version; what cannot be read is Malformed, never a crash."""

from __future__ import annotations

import dataclasses
from hashlib import blake2b
from typing import Any

import orjson

from shared.errors import Malformed
from shared.messages import Inbound, Media, Source

WIRE_VERSION = 1
_NEEDED = {"platform", "chat", "chat_type", "account"}


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
    digest = blake2b(orjson.dumps([platform, account, event_id]), digest_size=15)
    return f"in_{digest.hexdigest()}"


def encode_inbound(inbound: Inbound) -> bytes:
    return orjson.dumps({"v": WIRE_VERSION, "inbound": inbound})


def decode_inbound(data: bytes | str) -> Inbound:
    """The inbound in `data`; Malformed, with the reason, for garbage and for versions from the future."""
    try:
        record = orjson.loads(data)
        if not isinstance(record, dict) or record.get("v") != WIRE_VERSION:
            raise Malformed(f"wire version {record.get('v') if isinstance(record, dict) else None!r:.20} is not known")
        fields = record["inbound"]
        fields["source"] = decode_source(fields["source"])
        fields["media"] = decode_media(fields["media"])
        return Inbound(**fields)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"not an inbound: {type(error).__name__}") from None


def encode_text(value: Any) -> str:
    """JSON for a text column; dataclasses become objects."""
    return orjson.dumps(value).decode()


def decode_source(fields: Any) -> Source:
    source = Source(**fields)
    for field in dataclasses.fields(source):
        value = getattr(source, field.name)
        if not isinstance(value, str) and not (value is None and field.name not in _NEEDED):
            raise Malformed(f"source.{field.name} is not text")
    return source


def decode_media(items: Any) -> tuple[Media, ...]:
    return tuple(Media(**item) for item in items)

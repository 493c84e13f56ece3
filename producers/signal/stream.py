"""Server-sent events, put together from their lines."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from producers.heard import Event, parse_json
from shared.errors import Malformed

KIND = "receive"
ID_LIMIT = 128


class SignalStream:
    """The events of one connection. `last_id` is the id that the daemon gave to the last one; empty where it gives none."""

    def __init__(self) -> None:
        self.last_id = ""
        self._kind = KIND
        self._data: list[bytes] = []

    def feed(self, line: bytes) -> Event | None:
        """The event that this line completes, if it does. Comments keep the connection alive and say nothing."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            return self._complete()
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and is_event_id(value):
            self.last_id = value.decode()
        return None

    def _complete(self) -> Event | None:
        kind, data = self._kind, b"\n".join(self._data)
        self._kind, self._data = KIND, []
        return _event(data) if data and kind == KIND else None


def is_event_id(value: bytes) -> bool:
    """Whether this can be an id that a daemon gave: short, and fit to be sent back in a header."""
    return 0 < len(value) <= ID_LIMIT and value.isascii() and value.decode().isprintable()


def _event(data: bytes) -> Event:
    digest = sha256(data).hexdigest()[:16]
    try:
        fields = parse_json(data)
    except Malformed as error:
        return Event(digest, {}, raw=data, broken=str(error))
    return Event(f"{_said_at(fields)}-{digest}", fields, chat_of(fields))


def chat_of(fields: dict[str, Any]) -> str:
    """The chat whose order an event belongs to; empty where it has none. Pure, whatever stands in the fields."""
    envelope = _inner(fields, "envelope")
    group = _inner(_inner(envelope, "dataMessage"), "groupInfo").get("groupId")
    return str(group or envelope.get("sourceUuid") or envelope.get("source") or "")[:256]


def _said_at(fields: dict[str, Any]) -> str:
    return str(_inner(fields, "envelope").get("timestamp"))[:20]


def _inner(fields: dict[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}

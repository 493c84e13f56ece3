"""A request of WhatsApp's taken apart: it may hold messages and statuses of several phone numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from producers.heard import Event

OBJECT = "whatsapp_business_account"
FIELD = "messages"  # the only kind of change that holds messages to us


def events_in(notification: dict[str, Any]) -> list[Event]:
    """Its messages and statuses, in order. A piece that cannot be taken apart is one broken event, and the pieces beside
    it are taken. An event has `value`, what all of its change have in common, and either `message` or `status`."""
    if notification.get("object") != OBJECT:
        return [Event("", {"field": str(notification.get("object"))})]
    events: list[Event] = []
    for entry in _items(notification, "entry", events):
        for change in _items(entry, "changes", events):
            _add_events(change, events)
    return events


def number_of(event: Event) -> str:
    """The id of the phone number that an event is about, as far as it can be read."""
    return _number(event.fields.get("value"))


def _add_events(change: dict[str, Any], events: list[Event]) -> None:
    value = change.get("value")
    if change.get("field") != FIELD:
        events.append(Event("", {"field": str(change.get("field"))}))
        return
    if not isinstance(value, dict):
        events.append(_broken(change, "value is not an object"))
        return
    common = {name: value[name] for name in ("metadata", "contacts") if name in value}
    for kind, name in (("messages", "message"), ("statuses", "status")):
        for item in _items(value, kind, events):
            events.append(Event(str(item.get("id"))[:256], {"value": common, name: item}, _chat(common, item)))


def _items(holder: dict[str, Any], field: str, events: list[Event]) -> Iterator[dict[str, Any]]:
    """The objects in a list; what is none becomes an event at its place."""
    found = holder.get(field)
    if found is not None and not isinstance(found, list):
        events.append(_broken(holder, f"{field} is not a list"))
        return
    for item in found or ():
        if isinstance(item, dict):
            yield item
        else:
            events.append(_broken(item, f"{field} holds something that is no object"))


def _broken(piece: Any, reason: str) -> Event:
    return Event("", {}, raw=orjson.dumps(piece), broken=reason)


def _chat(common: dict[str, Any], item: dict[str, Any]) -> str:
    return f"{_number(common)}:{item.get('group_id') or item.get('from') or item.get('from_user_id')}"[:256]


def _number(common: Any) -> str:
    try:
        return str(common["metadata"]["phone_number_id"])[:64]
    except (KeyError, TypeError):
        return ""

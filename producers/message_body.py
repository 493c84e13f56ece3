"""The JSON in which programs write messages, to the generic webhook and to /v1/messages, and the Inbound it becomes. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shared.codec import message_id
from shared.errors import Malformed
from shared.messages import CHAT_TYPES, Inbound, Media, Source
from shared.session_key import check_id

_FIELDS = {
    "": {"id", "chat", "user", "thread", "text", "media", "reply_to", "mentioned", "sent_at"},
    "chat": {"id", "type", "name", "topic"},
    "user": {"id", "name"},
    "media": {"url", "type", "name"},
}
TEXT_LIMIT = 200_000
NAME_LIMIT = 256
MEDIA_LIMIT = 20


def event_id_of(fields: dict[str, Any]) -> str | None:
    """The event's own id, where the body has one."""
    return _id(fields, "id", "id")


def normalise(fields: dict[str, Any], platform: str, event_id: str, received_at: int, account: str = "") -> Inbound:
    """The Inbound that the fields describe. Malformed names the field that is missing, unknown or of the wrong kind.

    Ids are taken as they are or not at all. In text, NUL characters are replaced: PostgreSQL cannot store them.
    """
    _only_known(fields, "")
    chat, user = _object(fields, "chat"), _object(fields, "user")
    source = Source(
        platform=platform,
        chat=_needed(_id(chat, "id", "chat.id"), "chat.id"),
        chat_type=_one_of(_present(chat, "type", "dm"), "chat.type", CHAT_TYPES),
        account=account,
        user=_needed(_id(user, "id", "user.id"), "user.id"),
        thread=_id(fields, "thread", "thread"),
        chat_name=_text(chat, "name", "chat.name", NAME_LIMIT),
        user_name=_text(user, "name", "user.name", NAME_LIMIT),
        topic=(_text(chat, "topic", "chat.topic", NAME_LIMIT) or "").strip() or None,
    )
    text = _text(fields, "text", "text", TEXT_LIMIT) or ""
    media = _media(fields.get("media"))
    if not text and not media:
        raise Malformed("text or media is needed")
    return Inbound(
        id=message_id(platform, account, event_id),
        event_id=event_id,
        source=source,
        text=text,
        media=media,
        reply_to=_id(fields, "reply_to", "reply_to"),
        mentioned=_flag(_present(fields, "mentioned", True), "mentioned"),
        sent_at=_time(fields.get("sent_at")),
        received_at=received_at,
    )


def _only_known(fields: dict[str, Any], where: str) -> None:
    if not fields.keys() <= _FIELDS[where]:
        unknown = sorted(fields.keys() - _FIELDS[where])
        prefix = f"{where}." if where else ""
        raise Malformed(f"unknown field: {prefix}{unknown[0][:40]!a}")


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise Malformed(f"{name} is needed, as an object")
    _only_known(value, name)
    return value


def _present(fields: dict[str, Any], name: str, default: Any) -> Any:
    """A null is as good as nothing."""
    value = fields.get(name)
    return default if value is None else value


def _id(fields: dict[str, Any], name: str, where: str) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Malformed(f"{where} is not text")
    if "\0" in value:
        raise Malformed(f"{where} holds a NUL character")
    check_id(value)
    return value


def _needed(value: str | None, where: str) -> str:
    if value is None:
        raise Malformed(f"{where} is needed")
    return value


def _text(fields: dict[str, Any], name: str, where: str, limit: int) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Malformed(f"{where} is not text")
    if len(value) > limit:
        raise Malformed(f"{where} is longer than {limit} characters")
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _one_of(value: Any, where: str, allowed: frozenset[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise Malformed(f"{where} is none of {', '.join(sorted(allowed))}")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{where} is not true or false")
    return value


def _time(value: Any) -> int | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (TypeError, ValueError):
        raise Malformed("sent_at is not a time in ISO 8601") from None


def _media(items: Any) -> tuple[Media, ...]:
    if items is None:
        return ()
    if not isinstance(items, list) or len(items) > MEDIA_LIMIT:
        raise Malformed(f"media is not a list of at most {MEDIA_LIMIT}")
    found = []
    for item in items:
        if not isinstance(item, dict):
            raise Malformed("media items are objects")
        _only_known(item, "media")
        url = _text(item, "url", "media.url", 4096)
        if url is None or not url.startswith(("https://", "http://")):
            raise Malformed("media.url is needed, as an http(s) address")
        found.append(
            Media(url, _text(item, "type", "media.type", NAME_LIMIT), _text(item, "name", "media.name", NAME_LIMIT))
        )
    return tuple(found)

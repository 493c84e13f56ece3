"""Events of the first form, schema 1.0, which older apps are subscribed to. A message that comes in both forms is one."""

from __future__ import annotations

import re
from typing import Any

from producers.feishu.content import file_of
from producers.feishu.ids import id_, optional_id
from producers.fields import flag, object_, text
from producers.heard import Heard, Ignored
from shared.codec import message_id, storable
from shared.errors import Malformed
from shared.messages import Inbound, Media, Source
from shared.platforms.feishu import NAME

_CHAT_TYPES = {"private": "dm", "p2p": "dm", "group": "group"}
_AT = re.compile(r"<at\b[^<>]*>([^<>]*)</at>")
_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?")


def normalise(payload: dict[str, Any], app_id: str, bot_open_id: str, received_at: int) -> Heard:
    """What an event is to us. Malformed where something we read is of the wrong kind."""
    if not isinstance(payload.get("type"), str):
        raise Malformed("type is not text")
    if payload["type"] != "event_callback":
        return Ignored("kind")
    event = object_(payload, "event")
    if not isinstance(event.get("type"), str):
        raise Malformed("type is not text")
    if event["type"] != "message":
        return Ignored("kind")
    if event.get("app_id") not in (None, app_id):
        return Ignored("another app's")
    if event.get("open_id") == bot_open_id:
        return Ignored("bot")
    chat_type = _CHAT_TYPES.get(str(event.get("chat_type")))
    if chat_type is None:
        return Ignored("chat type")
    source = Source(
        platform=NAME,
        chat=id_(event, "open_chat_id"),
        chat_type=chat_type,
        user=id_(event, "open_id"),
        user_alt=optional_id(event, "union_id"),
        scope=optional_id(event, "tenant_key"),
    )
    sent_as = id_(event, "open_message_id")
    words, media = _said(event, sent_as)
    if not words and not media:
        return Ignored("empty")
    return Inbound(
        id=message_id(NAME, source.account, sent_as),
        event_id=sent_as,
        source=source,
        text=words,
        media=media,
        reply_to=optional_id(event, "parent_id"),
        mentioned=chat_type == "dm" or flag(event, "is_mention"),
        sent_at=_sent_at(payload),
        received_at=received_at,
        message=sent_as,
    )


def _said(event: dict[str, Any], sent_as: str) -> tuple[str, tuple[Media, ...]]:
    kind = text(event, "msg_type") or ""
    if kind == "image":
        return "", (file_of(event, "image_key", sent_as, "image/jpeg"),)
    if kind == "file":
        return "", (file_of(event, "file_key", sent_as, "application/octet-stream"),)
    words = text(event, "text_without_at_bot") or text(event, "text") or ""
    if not words and kind != "text":
        return storable(f"[{kind[:40]}]"), ()
    return storable(_AT.sub(r"\1", words).strip()), ()


def _sent_at(payload: dict[str, Any]) -> int | None:
    """Seconds, with a fraction, as text."""
    found = _SECONDS.fullmatch(text(payload, "ts") or "")
    return int(found[1]) * 1000 + int((found[2] or "0").ljust(3, "0")[:3]) if found is not None else None

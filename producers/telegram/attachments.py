"""The files of a Telegram message, by reference. Nothing is fetched here."""

from __future__ import annotations

from typing import Any

from producers.fields import flag, items, name, object_, text
from shared.errors import Malformed
from shared.messages import Media
from shared.platforms.telegram import FILE_SCHEME

_TYPES = {
    "animation": "video/mp4",
    "audio": "audio/mpeg",
    "document": "application/octet-stream",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "voice": "audio/ogg",
}


def attachments(message: dict[str, Any]) -> tuple[Media, ...]:
    """A message has one file at most, but an animation is also listed as a document, for old bots."""
    if photos := items(message, "photo"):
        return (_media(photos[-1], "image/jpeg"),)  # the same picture in several sizes, the largest last
    if message.get("sticker") is not None:
        sticker = object_(message, "sticker")
        kind = "application/x-tgsticker" if flag(sticker, "is_animated") else "image/webp"
        return (_media(sticker, "video/webm" if flag(sticker, "is_video") else kind),)
    for kind, usual_type in _TYPES.items():
        if message.get(kind) is not None:
            return (_media(object_(message, kind), usual_type),)
    return ()


def _media(file: dict[str, Any], usual_type: str) -> Media:
    file_id = text(file, "file_id")
    if file_id is None or not file_id.isascii() or not file_id.isprintable():
        raise Malformed("file_id is not an id")
    return Media(FILE_SCHEME + file_id, name(file, "mime_type") or usual_type, name(file, "file_name"))

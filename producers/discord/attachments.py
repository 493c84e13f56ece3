"""The files of a Discord message, by reference. Nothing is fetched here; the addresses are good for a day or so."""

from __future__ import annotations

from typing import Any

from producers.fields import items, name, text
from shared.errors import Malformed
from shared.messages import Media


def attachments(message: dict[str, Any]) -> tuple[Media, ...]:
    return tuple(media_of(file) for file in items(message, "attachments"))


def media_of(file: dict[str, Any]) -> Media:
    url = text(file, "url")
    if url is None or not url.startswith(("https://", "http://")) or not url.isascii() or not url.isprintable():
        raise Malformed("url is not an address")
    return Media(url, name(file, "content_type"), name(file, "filename"))

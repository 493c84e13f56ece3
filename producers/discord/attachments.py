"""The files of a Discord message, by reference. Nothing is fetched here.

An address is good for a day or so. Behind `#` it names the message, which knows fresh ones; no server is sent that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from producers.discord.snowflake import snowflake
from producers.fields import items, name, text
from shared.errors import Malformed
from shared.messages import Media


def attachments(message: dict[str, Any]) -> tuple[Media, ...]:
    if not (files := items(message, "attachments")):
        return ()
    place = f"#{snowflake(message, 'channel_id')}/{snowflake(message, 'id')}"
    return tuple(replace(media, url=media.url.partition("#")[0] + place) for media in map(media_of, files))


def media_of(file: dict[str, Any]) -> Media:
    url = text(file, "url")
    if url is None or not url.startswith(("https://", "http://")) or not url.isascii() or not url.isprintable():
        raise Malformed("url is not an address")
    return Media(url, name(file, "content_type"), name(file, "filename"))

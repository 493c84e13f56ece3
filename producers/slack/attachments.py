"""The files of a Slack message, by reference. Nothing is fetched here."""

from __future__ import annotations

import re
from typing import Any

from producers.fields import items, name, text
from shared.errors import Malformed
from shared.messages import Media
from shared.platforms.slack import FILE_SCHEME

_GONE = ("tombstone", "hidden_by_limit")  # deleted, or older than the workspace may see
_FILE_ID = re.compile(r"[A-Z0-9]{1,40}")


def attachments(event: dict[str, Any]) -> tuple[Media, ...]:
    """The files of a message, and of those that it forwards. A file of another workspace may come without name and kind: its id
    is enough to ask for them."""
    holders = (event, *items(event, "attachments"))
    return tuple(_media(file) for holder in holders for file in items(holder, "files") if file.get("mode") not in _GONE)


def _media(file: dict[str, Any]) -> Media:
    file_id = text(file, "id")
    if file_id is None or not _FILE_ID.fullmatch(file_id):
        raise Malformed("id is not a file's")
    return Media(FILE_SCHEME + file_id, name(file, "mimetype") or "application/octet-stream", name(file, "name"))

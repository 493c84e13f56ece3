"""Files that agents answer with, on their way to a platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial

from shared.blobs.address import Blob, blob_at
from shared.blobs.contract import Blobs, NotKept
from shared.blobs.sniff import HEAD_BYTES, sniffed
from shared.messages import Media
from shared.multipart import Upload
from shared.platforms.facts import Facts
from workers.media.names import file_name, readable_size
from workers.media.notes import note

_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}")


def refusal(media: Media, facts: Facts) -> str | None:
    """The line that a chat reads instead of a file that its platform does not take; None where it takes the file."""
    blob = blob_at(media.url)
    if blob is None:
        return None
    if facts.media is None:
        return note(media, f"files cannot be sent by {facts.title}")
    if blob.size > facts.media.sent:
        sizes = f"{readable_size(blob.size)}, at most {readable_size(facts.media.sent)}"
        return note(media, f"too large for {facts.title} ({sizes})")
    return None


class Uploads:
    """The files of one platform's replies."""

    def __init__(self, blobs: Blobs, facts: Facts) -> None:
        self._blobs = blobs
        self._facts = facts

    async def of(self, media: Media) -> Upload | str | None:
        """The file to upload, or the line that the chat reads instead. None: it is no file of ours, but an address.

        Its first bytes say what it is: an agent may call it something else.
        """
        blob = blob_at(media.url)
        if blob is None:
            return None
        if (line := refusal(media, self._facts)) is not None:
            return line
        try:
            head = await self._head(blob)
        except NotKept:
            return note(media, "no longer kept")
        said = (media.type or "").lower()
        kind = sniffed(head, said if _TYPE.fullmatch(said) else None)
        return Upload(file_name(media.name, kind), kind, blob.size, partial(self._chunks, blob))

    async def _head(self, blob: Blob) -> bytes:
        async for chunk in self._blobs.read(blob):
            return chunk[:HEAD_BYTES]
        return b""

    async def _chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        async for chunk in self._blobs.read(blob):
            yield chunk

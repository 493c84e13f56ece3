"""Pictures that stand in a request itself become blobs at the door: the journal and the queues hold their names only.

A blob is kept before its message is accepted. If the message then is not, nothing refers to the blob, and it is removed in time
(`MEDIA__ORPHAN_HOURS`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from mimetypes import MimeTypes

from producers.api.chat.request import ChatRequest, InlineImage
from producers.server.body import TooLarge
from shared.blobs.contract import Blobs
from shared.blobs.sniff import HEAD_BYTES, sniffed
from shared.errors import Malformed
from shared.messages import Media
from shared.settings import MediaSettings

_TYPES = MimeTypes()  # without the machine's own files: the same everywhere


async def kept_media(request: ChatRequest, blobs: Blobs, settings: MediaSettings) -> tuple[Media, ...]:
    """The media of a request, with blobs for the pictures in it. TooLarge and Malformed for one that cannot be read;
    Unavailable while the place for blobs is away."""
    for n, item in enumerate(request.media):
        if n >= settings.max_files and isinstance(item, InlineImage):
            raise Malformed(f"{item.where}: at most {settings.max_files} images of a message are read")
    read = [_read(item, settings) if isinstance(item, InlineImage) else item for item in request.media]
    return tuple([item if isinstance(item, Media) else await _kept(*item, blobs) for item in read])


def _read(image: InlineImage, settings: MediaSettings) -> tuple[bytes, str]:
    """The picture and its type, which follows from its first bytes."""
    head, _, data = image.address.partition(",")
    said, *options = head.partition(":")[2].split(";")
    if [option.strip().lower() for option in options[-1:]] != ["base64"]:
        raise Malformed(f"{image.where}: an image in a request is written as data:image/…;base64,…")
    if len(data) > settings.max_bytes * 4 // 3 + 4:
        raise TooLarge(f"{image.where}: an image is larger than {settings.max_bytes} bytes")
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{image.where}: an image is not base64") from None
    if len(content) > settings.max_bytes:
        raise TooLarge(f"{image.where}: an image is larger than {settings.max_bytes} bytes")
    kind = sniffed(content[:HEAD_BYTES], said)
    if not kind.startswith("image/"):
        raise Malformed(f"{image.where}: an image is none")
    if not any(fnmatchcase(kind, pattern) for pattern in settings.types):
        raise Malformed(f"{image.where}: files of the kind {kind} are not read here")
    return content, kind


async def _kept(content: bytes, kind: str, blobs: Blobs) -> Media:
    async def whole() -> AsyncIterator[bytes]:
        yield content

    blob = await blobs.keep(whole(), len(content))
    return Media(str(blob), kind, f"image{_TYPES.guess_extension(kind) or ''}")

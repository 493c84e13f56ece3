"""What a model is shown of the files in a conversation: pictures as they are, documents as text, the newest first until a limit
is reached. Everything else is a breadcrumb in the text. Rows keep references only; the bytes are read when a request is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import field, replace
from uuid import uuid4

from shared.agent.files import Files
from shared.agent.turn import Turn
from shared.blobs.address import blob_at
from shared.blobs.contract import NotKept
from shared.context.labels import inert
from shared.context.marks import MEDIA, PICTURES, media_of, user_row
from shared.messages import Entry, Media
from shared.settings import LlmSettings
from shared.value import value

SHOWN_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # that providers take
TEXT_TYPES = ("text/", "application/json", "application/xml")
REQUEST_BYTES = 20_000_000  # of pictures in one request
CUT = "\n(The rest of this file is left out.)"


@value
class Picture:
    """A picture that a request shows. `placeholder` stands for it until the request is written: nobody can guess it."""

    media: Media
    size: int
    files: Files = field(compare=False, repr=False)
    placeholder: str = field(default_factory=lambda: f"picture:{uuid4().hex}")

    @property
    def type(self) -> str:
        return self.media.type or "image/png"

    def chunks(self) -> AsyncIterator[bytes]:
        return self.files.chunks(self.media)

    async def read(self) -> bytes:
        return await self.files.read(self.media)


@value
class Attachments:
    """The files that a model is shown, by address."""

    pictures: Mapping[str, Picture] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pictures or self.texts)

    def on(self, row: Entry) -> Entry:
        """The row with its files: the text of documents behind its own, and its pictures as a mark."""
        if not row.data.get(MEDIA) or row.role != "user":
            return row
        files = media_of(row)
        texts = [_enclosed(media, self.texts[media.url]) for media in files if media.url in self.texts]
        # a placeholder of its own for each place: the same picture may be in several rows
        shown = [replace(self.pictures[m.url], placeholder=_fresh()) for m in files if m.url in self.pictures]
        if not texts and not shown:
            return row
        data = {**row.data, MEDIA: [media for media in files if media.url not in self.texts]}
        if shown:
            data[PICTURES] = tuple(shown)
        return replace(row, text="\n".join(filter(None, (row.text, *texts))), data=data)


def has_files(turn: Turn) -> bool:
    """Whether anything in the turn refers to a file that was kept."""
    return any(blob_at(media.url) is not None for media in _newest_first(turn))


async def attached(turn: Turn, config: LlmSettings) -> Attachments:
    """The files of a turn as its model may see them. A file that is gone is left out: its breadcrumb stays."""
    pictures: dict[str, Picture] = {}
    texts: dict[str, str] = {}
    bytes_left, characters_left = REQUEST_BYTES, config.document_characters
    for media in _newest_first(turn):
        blob = blob_at(media.url)
        if blob is None or media.url in pictures or media.url in texts:
            continue
        kind = media.type or ""
        if kind in SHOWN_TYPES:
            fits = len(pictures) < config.images and blob.size <= min(bytes_left, config.image_bytes)
            if fits and await turn.files.has(media):
                pictures[media.url] = Picture(media, blob.size, turn.files)
                bytes_left -= blob.size
        elif kind.startswith(TEXT_TYPES) and characters_left > 0:
            try:
                texts[media.url] = text = await _text(turn.files, media, characters_left)
            except NotKept:
                continue
            characters_left -= len(text)
    return Attachments(pictures, texts)


def _newest_first(turn: Turn) -> Iterable[Media]:
    for row in map(user_row, reversed(turn.mail)):
        yield from reversed(media_of(row))
    for row in reversed(turn.history):
        if row.role == "user" and row.data.get(MEDIA):
            yield from reversed(media_of(row))


async def _text(files: Files, media: Media, characters: int) -> str:
    """The beginning of a document. Bytes that are no UTF-8 are replaced."""
    read = bytearray()
    async for chunk in files.chunks(media):
        read += chunk
        if len(read) > 4 * characters:
            break
    text = read.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= characters else text[:characters] + CUT


def _enclosed(media: Media, text: str) -> str:
    name = inert(media.name or "file", 120).replace("[", "(").replace("]", ")")
    return f"[file: {name}]\n{text}\n[end of {name}]"


def _fresh() -> str:
    return f"picture:{uuid4().hex}"

"""The files of a turn: those that people sent, and those that the agent answers with."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Protocol

from shared.blobs.address import Blob, blob_at
from shared.blobs.contract import Blobs, NotKept
from shared.blobs.directory import DirectoryBlobs
from shared.blobs.sniff import HEAD_BYTES, sniffed
from shared.messages import Media

ADDED_BYTES = 100_000_000  # the largest file that an agent may answer with; platforms take less


class Files(Protocol):
    """Reads the files that `Turn.mail` and `Turn.history` refer to, and keeps new ones."""

    def chunks(self, media: Media) -> AsyncIterator[bytes]:
        """The bytes of a file in pieces. NotKept where it is not here: it was never fetched, or has been removed."""

    async def read(self, media: Media) -> bytes:
        """All bytes of a file at once. Raises as `chunks` does."""

    async def has(self, media: Media) -> bool:
        """Whether the file can be read."""

    async def add(self, content: bytes | AsyncIterable[bytes], name: str, type: str | None = None) -> Media:
        """Keep a file, so that a `Reply` can carry it. Where `type` is unset, its first bytes say what it is."""

    @property
    def directory(self) -> str | None:
        """Where the files are on this machine, for processes that it starts; None where they are elsewhere."""


class BlobFiles:
    """Files in the deployment's place for blobs."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def chunks(self, media: Media) -> AsyncIterator[bytes]:
        async for chunk in self._blobs.read(_blob(media)):
            yield chunk

    async def read(self, media: Media) -> bytes:
        return b"".join([chunk async for chunk in self.chunks(media)])

    async def has(self, media: Media) -> bool:
        blob = blob_at(media.url)
        return blob is not None and await self._blobs.has(blob)

    async def add(self, content: bytes | AsyncIterable[bytes], name: str, type: str | None = None) -> Media:
        head = bytearray()

        async def watched() -> AsyncIterator[bytes]:
            async for chunk in _pieces(content):
                if len(head) < HEAD_BYTES:
                    head.extend(chunk[:HEAD_BYTES])
                yield chunk

        blob = await self._blobs.keep(watched(), ADDED_BYTES)
        return Media(str(blob), type or sniffed(bytes(head[:HEAD_BYTES])), name)

    @property
    def directory(self) -> str | None:
        return str(self._blobs.root.absolute()) if isinstance(self._blobs, DirectoryBlobs) else None


class NoFiles:
    """Where nothing keeps files: none can be read, and none be added."""

    async def chunks(self, media: Media) -> AsyncIterator[bytes]:
        raise NotKept("nothing keeps files here")
        yield b""

    async def read(self, media: Media) -> bytes:
        raise NotKept("nothing keeps files here")

    async def has(self, media: Media) -> bool:
        return False

    async def add(self, content: bytes | AsyncIterable[bytes], name: str, type: str | None = None) -> Media:
        raise NotKept("nothing keeps files here")

    @property
    def directory(self) -> str | None:
        return None


def files_in(directory: str | None) -> Files:
    """What another process of this machine finds in `directory`."""
    return BlobFiles(DirectoryBlobs(Path(directory))) if directory else NoFiles()


def _blob(media: Media) -> Blob:
    if (blob := blob_at(media.url)) is None:
        raise NotKept("the file was not fetched")
    return blob


async def _pieces(content: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(content, bytes | bytearray):
        yield bytes(content)
        return
    async for chunk in content:
        yield chunk

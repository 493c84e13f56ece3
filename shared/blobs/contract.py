"""What a place for blobs does. A directory is one (directory.py), a bucket of an object store another (bucket.py)."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol

from shared.blobs.address import Blob
from shared.errors import PipelineError

SHARDS = 256  # blobs are looked through in so many parts, by the first two characters of their digests
BLOCK_BYTES = 48 * 1024  # written and read at once, in a thread: hundreds of files are on their way in one process


class FileTooLarge(PipelineError):
    """More bytes came than may be kept. `size` is how many it would be, where somebody said so."""

    def __init__(self, most: int, size: int | None = None) -> None:
        super().__init__(f"more than {most} bytes")
        self.most = most
        self.size = size


class NotKept(PipelineError):
    """This place does not have the blob: it was removed, or another machine has it."""


class Blobs(Protocol):
    """A place for blobs. All processes that run turns or send replies need the same one."""

    async def keep(self, chunks: AsyncIterable[bytes], most: int) -> Blob:
        """Write the bytes and give their name. When it returns, they survive a crash; before, nothing of them is seen.

        FileTooLarge where more than `most` bytes come. What `chunks` raises is raised on. Nothing is kept then. The same bytes
        again are kept once, and count as young again.
        """

    def read(self, blob: Blob) -> AsyncIterator[bytes]:
        """The bytes in pieces. NotKept where they are not here, or are not as many as the name says."""

    async def has(self, blob: Blob) -> bool:
        """Whether the bytes are here."""

    async def unused_for(self, age: timedelta, shard: int, after: str, limit: int) -> Sequence[str]:
        """The next digests of one shard behind `after`, in order, that were last kept longer ago than `age`. Leftovers of
        writers that died as long ago are removed."""

    async def remove(self, digest: str, age: timedelta) -> bool:
        """Remove a blob, unless it was kept again within `age`: then somebody is about to refer to it. False: it stays, or
        was gone."""

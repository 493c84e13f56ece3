"""A file on its way to a place that wants its name first: the name follows from all of its bytes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO

from shared.blobs.address import Blob
from shared.blobs.contract import BLOCK_BYTES, FileTooLarge
from shared.private_directory import make_private_directory
from shared.value import value


@value
class SpooledFile:
    """All bytes of a file, on this machine's disk, and the name that they give it."""

    file: IO[bytes]
    blob: Blob


@asynccontextmanager
async def spooled(chunks: AsyncIterable[bytes], most: int, directory: Path) -> AsyncIterator[SpooledFile]:
    """Write what comes to a file that has no name, so that a process that dies leaves nothing. FileTooLarge where more than
    `most` bytes come."""
    file = await asyncio.to_thread(_nameless, directory)
    try:
        size, block, digest = 0, bytearray(), sha256()
        async for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise FileTooLarge(most)
            block += chunk
            digest.update(chunk)
            if len(block) >= BLOCK_BYTES:
                await asyncio.to_thread(file.write, block)
                block = bytearray()
        await asyncio.to_thread(_finish, file, block)
        yield SpooledFile(file, Blob(digest.hexdigest(), size))
    finally:
        file.close()


def _nameless(directory: Path) -> IO[bytes]:
    make_private_directory(directory)
    return tempfile.TemporaryFile(dir=directory)


def _finish(file: IO[bytes], block: bytearray) -> None:
    file.write(block)
    file.flush()
    file.seek(0)

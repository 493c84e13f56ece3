"""Blobs in a directory.

    <root>/ab/abcd…     a blob, under its digest
    <root>/ab/.lock     locked while a blob of the shard is put in place or removed
    <root>/new/…        what is being written; left behind only by a process that died

A blob is written to `new`, synced, and renamed, so a name in a shard always has all its bytes. Its modification time is when
it was last kept. Machines that share a conversation must share the directory, by a file system that has locks.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from shared.blobs.address import Blob
from shared.blobs.contract import BLOCK_BYTES, FileTooLarge, NotKept
from shared.on_disk import sync
from shared.private_directory import make_private_directory

_DIGEST_LENGTH = 64
_NEW = "new"


class DirectoryBlobs:
    """`Blobs` below a directory, which is made when the first one is kept."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def keep(self, chunks: AsyncIterable[bytes], most: int) -> Blob:
        writing = await asyncio.to_thread(_NewBlob, self.root)
        try:
            size, block = 0, bytearray()
            async for chunk in chunks:
                size += len(chunk)
                if size > most:
                    raise FileTooLarge(most)
                block += chunk
                if len(block) >= BLOCK_BYTES:
                    await asyncio.to_thread(writing.add, block)
                    block = bytearray()
            return await asyncio.to_thread(writing.finish, block)
        finally:
            writing.close()

    async def read(self, blob: Blob) -> AsyncIterator[bytes]:
        try:
            file = await asyncio.to_thread(open, self._path(blob.digest), "rb")
        except OSError as error:
            raise NotKept(type(error).__name__) from None
        with file:
            if os.fstat(file.fileno()).st_size != blob.size:
                raise NotKept("of another size")
            while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
                yield block

    async def has(self, blob: Blob) -> bool:
        return await asyncio.to_thread(self._has, blob)

    async def unused_for(self, age: timedelta, shard: int, after: str, limit: int) -> Sequence[str]:
        before = time.time() - age.total_seconds()
        return await asyncio.to_thread(self._unused_for, before, f"{shard:02x}", after, limit)

    async def remove(self, digest: str, age: timedelta) -> bool:
        return await asyncio.to_thread(self._remove, digest, time.time() - age.total_seconds())

    def _has(self, blob: Blob) -> bool:
        try:
            return self._path(blob.digest).stat().st_size == blob.size
        except OSError:
            return False

    def _unused_for(self, before: float, shard: str, after: str, limit: int) -> Sequence[str]:
        for path in _old(self.root / _NEW, before):
            path.unlink(missing_ok=True)
        names = (path.name for path in _old(self.root / shard, before))
        return sorted(name for name in names if len(name) == _DIGEST_LENGTH and name > after)[:limit]

    def _remove(self, digest: str, before: float) -> bool:
        path = self._path(digest)
        with suppress(FileNotFoundError), _locked(path.parent):
            if path.stat().st_mtime < before:
                path.unlink()
                return True
        return False

    def _path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest


class _NewBlob:
    """A file that is being written. Closed before it is finished, it leaves nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / _NEW / uuid4().hex
        make_private_directory(self._path.parent)
        self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115 (closed by `close`)
        self._digest = sha256()
        self._size = 0

    def add(self, block: bytes | bytearray) -> None:
        self._file.write(block)
        self._digest.update(block)
        self._size += len(block)

    def finish(self, block: bytes | bytearray) -> Blob:
        """Add the last bytes and put the file in its place."""
        self.add(block)
        self._file.flush()
        os.fsync(self._file.fileno())
        blob = Blob(self._digest.hexdigest(), self._size)
        shard = self._root / blob.digest[:2]
        shard.mkdir(mode=0o700, exist_ok=True)
        with _locked(shard):
            place = shard / blob.digest
            try:
                if place.stat().st_size == blob.size:
                    os.utime(place)
                    return blob
            except FileNotFoundError:
                pass
            os.rename(self._path, place)
            os.utime(place)
            sync(shard)
        return blob

    def close(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def _locked(shard: Path) -> Iterator[None]:
    """Nobody puts a blob of the shard in place, or removes one, at the same time."""
    with open(shard / ".lock", "ab", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _old(folder: Path, before: float) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < before:
                    yield Path(entry.path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

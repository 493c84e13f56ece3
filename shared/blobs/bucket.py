"""Blobs in a bucket of an object store that speaks S3.

    <prefix>/ab/abcd…/<when, ms>-<random>     one copy of a blob; the name says when it was kept

An object store has no locks. So each time a blob is kept, a copy with a name of its own is written, whole or not at all, and
removing means removing copies that were listed. Whoever keeps a blob while another process removes it has a copy that the other
never listed. The youngest copy is the blob; the older ones are removed by `unused_for`.

When the store does not answer, or refuses us, calls raise Unavailable: that is an outage of ours, and costs no attempt.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from shared.blobs.address import Blob
from shared.blobs.contract import BLOCK_BYTES, NotKept
from shared.blobs.spool import SpooledFile, spooled
from shared.errors import Unavailable
from shared.value import value

UPLOADS_AT_ONCE = 4  # each holds up to two pieces in memory
PIECE_BYTES = 8_000_000  # a larger file goes up in pieces
LISTED_AT_ONCE = 100
_COPY = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})/([0-9]{13})-[0-9a-f]{32}")
_BEHIND_ALL_COPIES = "z"  # their names begin with digits


@value
class Copy:
    """One copy of a blob in the bucket."""

    name: str
    digest: str
    kept_ms: int
    size: int


class BucketBlobs:
    """`Blobs` in a bucket. `arriving` is a directory of this machine for files whose last byte has not come yet."""

    def __init__(self, store: S3Store, arriving: Path) -> None:
        self._store = store
        self._arriving = arriving
        self._uploads = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def keep(self, chunks: AsyncIterable[bytes], most: int) -> Blob:
        async with spooled(chunks, most, self._arriving) as arrived, self._uploads:
            await self._upload(arrived)
            return arrived.blob

    async def read(self, blob: Blob) -> AsyncIterator[bytes]:
        for _ in range(2):  # a younger copy may take the place of the one that was listed
            if (copy := await self._youngest(blob)) is None:
                break
            with _outages():
                try:
                    answer = await obstore.get_async(self._store, copy.name)
                except FileNotFoundError:
                    continue
                async for block in answer.stream(min_chunk_size=BLOCK_BYTES):
                    yield bytes(block)
                return
        raise NotKept("not in the bucket, or of another size")

    async def has(self, blob: Blob) -> bool:
        return await self._youngest(blob) is not None

    async def unused_for(self, age: timedelta, shard: int, after: str, limit: int) -> Sequence[str]:
        before, found = _now_ms(-age), list[str]()
        async for copies in self._blobs_of(f"{shard:02x}", after):
            *older, youngest = copies
            await self._delete([copy for copy in older if copy.kept_ms < before])
            if youngest.kept_ms < before:
                found.append(youngest.digest)
            if len(found) == limit:
                break
        return found

    async def remove(self, digest: str, age: timedelta) -> bool:
        copies, before = await self._copies(digest), _now_ms(-age)
        if not copies or copies[-1].kept_ms >= before:
            return False
        await self._delete(copies)
        return True

    async def check(self) -> str | None:
        """What is wrong with the store, in words for its operator; None where it answers and lists what it has."""
        try:
            await obstore.get_async(self._store, f"check/{uuid4().hex}")
        except FileNotFoundError:
            pass  # as it must be: nothing has this name
        except (PermissionDeniedError, UnauthenticatedError):
            return "refuses our key, or the key may not read and list the bucket"
        except BaseError:
            return "does not answer"
        try:
            await self._copies("0" * 64)
        except Unavailable:
            return "has no such bucket, or the key may not list it"
        return None

    async def _upload(self, arrived: SpooledFile) -> None:
        digest = arrived.blob.digest
        name = f"{digest[:2]}/{digest}/{_now_ms():013d}-{uuid4().hex}"
        pieces = arrived.blob.size > PIECE_BYTES
        with _outages():
            await obstore.put_async(
                self._store,
                name,
                arrived.file,
                use_multipart=pieces,
                chunk_size=PIECE_BYTES,
                max_concurrency=1,
            )

    async def _youngest(self, blob: Blob) -> Copy | None:
        copies = [copy for copy in await self._copies(blob.digest) if copy.size == blob.size]
        return copies[-1] if copies else None

    async def _copies(self, digest: str) -> Sequence[Copy]:
        """All copies of a blob, the youngest last."""
        return [copy async for copy in self._listed(f"{digest[:2]}/{digest}/", None)]

    async def _blobs_of(self, shard: str, after: str) -> AsyncIterator[list[Copy]]:
        """The copies of each blob of a shard behind `after`, in the order of digests, the youngest last."""
        copies = list[Copy]()
        offset = f"{shard}/{after}/{_BEHIND_ALL_COPIES}" if after else None
        async for copy in self._listed(f"{shard}/", offset):
            if copies and copies[0].digest != copy.digest:
                yield copies
                copies = []
            copies.append(copy)
        if copies:
            yield copies

    async def _listed(self, prefix: str, offset: str | None) -> AsyncIterator[Copy]:
        with _outages():
            async for listed in obstore.list(self._store, prefix=prefix, offset=offset, chunk_size=LISTED_AT_ONCE):
                for about in listed:
                    if (found := _COPY.fullmatch(about["path"])) is not None:
                        yield Copy(about["path"], found[1], int(found[2]), about["size"])

    async def _delete(self, copies: Sequence[Copy]) -> None:
        with _outages():
            for copy in copies:
                await obstore.delete_async(self._store, copy.name)


@contextmanager
def _outages() -> Iterator[None]:
    """Errors of the library become Unavailable. Their text is left out: it quotes requests and what the server said."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError):
        raise Unavailable("the object store refuses our key") from None
    except (BaseError, FileNotFoundError) as error:
        raise Unavailable(f"the object store does not answer as it should ({type(error).__name__})") from None


def _now_ms(later: timedelta = timedelta(0)) -> int:
    return int((time.time() + later.total_seconds()) * 1000)

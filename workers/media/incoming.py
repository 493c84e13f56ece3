"""A file on its way in, as a platform gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from shared.blobs.contract import FileTooLarge
from shared.errors import PipelineError, RateLimited, Transient
from shared.http_client import HttpStream, retry_after
from shared.value import value

LONGEST_WAIT = timedelta(minutes=5)


class CannotFetch(PipelineError):
    """The file cannot be had, and trying again would not help. The text is for the agent, so it quotes no address."""


@value
class FetchLimits:
    """How large a file may be, and how long each request for it may take."""

    bytes: int
    seconds: float

    def check(self, size: int | None) -> None:
        """FileTooLarge for a file that is said to be larger."""
        if size is not None and size > self.bytes:
            raise FileTooLarge(self.bytes, size)


@value
class IncomingFile:
    """What comes, and what the sender says of it: neither the size nor the type has to be true."""

    chunks: AsyncIterator[bytes]
    size: int | None = None
    type: str | None = None


@asynccontextmanager
async def answered(opening: AbstractAsyncContextManager[HttpStream]) -> AsyncIterator[IncomingFile]:
    """The file that an answer brings. Raises CannotFetch, RateLimited or Transient for one that brings none."""
    async with opening as answer:
        status, headers = answer.status, answer.headers
        if status == 429:
            raise RateLimited(retry_after(headers.get("retry-after"), longest=LONGEST_WAIT))
        if status >= 500 or status == 408:
            raise Transient(f"HTTP {status}")
        if status in (401, 403, 404, 410):
            raise CannotFetch(f"it is no longer there, or we may not read it (HTTP {status})")
        if status != 200:
            raise CannotFetch(f"its server answers HTTP {status}")
        length = headers.get("content-length", "")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        yield IncomingFile(answer.chunks(most=None), int(length) if length.isdecimal() else None, kind or None)

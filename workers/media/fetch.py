"""The files of a message become blobs, just before its turn. A file that cannot be had becomes a line of the message's text,
and the turn runs: a file never makes a turn fail. Only an outage of our own place for blobs does: the message waits for it.

Each file has a limit of size, type and time. Errors that pass are tried again within that time. What was kept by a turn that
then dies is removed when nothing refers to it; the next attempt fetches again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from fnmatch import fnmatchcase

from shared import log, metrics
from shared.blobs.address import SCHEME
from shared.blobs.contract import Blobs, FileTooLarge
from shared.blobs.sniff import HEAD_BYTES, sniffed
from shared.errors import Denied, PipelineError, RateLimited, Transient, Unavailable, Undeliverable
from shared.messages import Inbound, Media, Source
from shared.platforms import facts_of
from shared.public_http import NotPublic, PublicHttp
from shared.settings import MediaSettings
from workers.delivery.sender import GivesFiles, Sender
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile, answered
from workers.media.names import file_name, readable_size
from workers.media.notes import note
from workers.media.sender_slots import SenderSlots

TRIES = 3
FIRST_WAIT_SECONDS = 0.5
AT_ONCE = 32  # files that one process fetches
OF_ONE_SENDER = 4  # of these, at the same time


class MediaFetcher:
    """Fetches for all turns of a process."""

    def __init__(
        self, blobs: Blobs, settings: MediaSettings, senders: Mapping[str, Sender], public: PublicHttp
    ) -> None:
        self._blobs = blobs
        self._settings = settings
        self._givers = {name: sender for name, sender in senders.items() if isinstance(sender, GivesFiles)}
        self._public = public
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._of_senders = SenderSlots(OF_ONE_SENDER)

    async def fetched(self, inbound: Inbound) -> Inbound:
        """The message with blobs for its files, and a line of text for each that could not be had. Unavailable
        while the place for blobs is away; it fails in no other way."""

        async def one(media: Media) -> Media | str:
            async with self._of_senders.slot(inbound.source), self._slots:
                return await self._outcome(media, inbound.source)

        most = self._settings.max_files
        outcomes = await asyncio.gather(*map(one, inbound.media[:most]), return_exceptions=True)
        found = list[Media | str]()
        for outcome in outcomes:  # all have ended: none goes on fetching for a turn that is over
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
        found += [note(media, f"not read: only {most} files of a message are") for media in inbound.media[most:]]
        notes = [outcome for outcome in found if isinstance(outcome, str)]
        text = "\n".join(filter(None, (inbound.text, *notes)))
        return replace(inbound, text=text, media=tuple(one for one in found if isinstance(one, Media)))

    async def _outcome(self, media: Media, source: Source) -> Media | str:
        """The kept file, or why there is none."""
        try:
            async with asyncio.timeout(self._settings.fetch_seconds) as limit:
                kept = await self._kept(media, source, limit)
            metrics.MEDIA_FETCHED.labels("kept").inc()
            return kept
        except Unavailable:
            raise
        except FileTooLarge as error:
            size = f"{readable_size(error.size)}, " if error.size is not None else ""
            reason, outcome = f"too large ({size}at most {readable_size(error.most)})", "too large"
        except (CannotFetch, NotPublic) as error:
            reason, outcome = f"not read: {error}", "refused"
        except TimeoutError:
            reason, outcome = f"not read: it did not come within {self._settings.fetch_seconds:g} s", "late"
        except (Denied, Undeliverable) as error:
            log.get().error("a platform does not give us a file", platform=source.platform, reason=str(error))
            reason, outcome = f"not read: {facts_of(source.platform).title} does not give it to us", "refused"
        except PipelineError as error:
            log.get().warning("file not fetched", platform=source.platform, error=f"{type(error).__name__}: {error}")
            reason, outcome = "not read: it could not be fetched", "unreachable"
        except Exception:  # the turn runs without the file
            log.get().exception("file not fetched", platform=source.platform)
            reason, outcome = "not read: it could not be fetched", "error"
        metrics.MEDIA_FETCHED.labels(outcome).inc()
        return note(media, reason)

    async def _kept(self, media: Media, source: Source, limit: asyncio.Timeout) -> Media:
        """Fetch it, again after errors that pass. `limit` ends with the last byte: how long we take to keep it is another matter."""
        if media.url.startswith(SCHEME):
            return media
        limits, wait = self._limits(source.platform), FIRST_WAIT_SECONDS
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                async with self._opened(media, source, limits) as file:
                    return await self._keep(media, replace(file, chunks=_within(limit, file.chunks)), limits)
            except Unavailable:
                raise
            except Transient as error:
                if not tries_left:
                    raise
                asked = error.retry_after.total_seconds() if isinstance(error, RateLimited) else 0
                await asyncio.sleep(max(wait, asked))
                wait *= 2
        raise AssertionError("unreachable")

    def _limits(self, platform: str) -> FetchLimits:
        most, given = self._settings.max_bytes, facts_of(platform).media
        return FetchLimits(min(most, given.fetched) if given is not None else most, self._settings.fetch_seconds)

    def _opened(self, media: Media, source: Source, limits: FetchLimits) -> AbstractAsyncContextManager[IncomingFile]:
        giver = self._givers.get(source.platform)
        if giver is not None:
            return giver.file(media, source, limits)
        if not media.url.startswith(("https://", "http://")):
            raise CannotFetch("files of this platform are not fetched")
        return answered(self._public.get(media.url, limits.seconds))

    async def _keep(self, media: Media, file: IncomingFile, limits: FetchLimits) -> Media:
        limits.check(file.size)
        head, rest = await _with_head(file.chunks)
        kind = self._checked(sniffed(head, media.type or file.type), media.type)
        blob = await self._blobs.keep(_joined(head, rest), limits.bytes)
        return Media(str(blob), kind, file_name(media.name, kind))

    def _checked(self, kind: str, said: str | None) -> str:
        """The type, if such files are kept. A file that is said to be a picture and is none is not read at all."""
        said_to_be = (said or "").partition("/")[0].lower()
        if said_to_be in ("image", "audio", "video") and kind.partition("/")[0] not in _SEEN_AS[said_to_be]:
            raise CannotFetch(f"it is no {said_to_be}, although it says so")
        if not any(fnmatchcase(kind, pattern) for pattern in self._settings.types):
            raise CannotFetch(f"files of the kind {kind} are not read here")
        return kind


_SEEN_AS = {"image": ("image", "video"), "audio": ("audio", "video"), "video": ("video", "audio", "image")}


async def _within(limit: asyncio.Timeout, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of a file, and no limit after the last one."""
    async for chunk in chunks:
        yield chunk
    if not limit.expired():
        limit.reschedule(None)


async def _with_head(chunks: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """The first bytes, and what follows them."""
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    return head, chunks


async def _joined(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk

"""What the answer of a server says of a file, and what becomes of a file that cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.blobs.address import Blob
from shared.blobs.contract import Blobs, FileTooLarge
from shared.errors import Denied, RateLimited, Transient, Unavailable, Undeliverable
from shared.http_client import HttpStream
from shared.messages import Inbound, Media, Source
from shared.platforms import PLATFORMS
from shared.public_http import NotPublic, open_public_http
from shared.settings.media import MediaSettings
from tests.support.uploads import a_png
from workers.delivery.sender import Sender
from workers.media.fetch import FIRST_WAIT_SECONDS, TRIES, MediaFetcher
from workers.media.incoming import LONGEST_WAIT, CannotFetch, FetchLimits, IncomingFile, answered

PICTURE, SOUND, FILM = a_png(), b"ID3\x04\0", b"\0\0\0\x20ftypisom"
BLOB = Blob("0" * 64, 5)


class Answer:
    """An answer of which no more than ten bytes are read, unless the reader sets no limit."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers

    async def chunks(self, most: int | None = 10) -> AsyncIterator[bytes]:
        yield b"x" * (20 if most is None else most)


@asynccontextmanager
async def answer(status: int, **headers: str) -> AsyncIterator[HttpStream]:
    yield cast(HttpStream, Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}))


@pytest.mark.parametrize(
    ("headers", "size", "type"),
    [
        ({}, None, None),
        ({"content_length": "17", "content_type": "Image/PNG; charset=x"}, 17, "image/png"),
        ({"content_length": "0", "content_type": "text/plain"}, 0, "text/plain"),
        ({"content_length": "-17", "content_type": " ;"}, None, None),
        ({"content_length": "many"}, None, None),
    ],
)
async def test_a_file_comes_whole_with_what_its_server_says_of_it(
    headers: dict[str, str], size: int | None, type: str | None
) -> None:
    async with answered(answer(200, **headers)) as file:
        assert (file.size, file.type) == (size, type)
        assert b"".join([chunk async for chunk in file.chunks]) == b"x" * 20


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        *((status, CannotFetch, "no longer there") for status in (401, 403, 404, 410)),
        *((status, CannotFetch, f"answers HTTP {status}") for status in (201, 204, 206, 304, 400, 402, 451)),
        *((status, Transient, f"HTTP {status}") for status in (408, 500, 502, 503, 504)),
    ],
)
async def test_an_answer_without_the_file_is_tried_again_only_where_that_may_help(
    status: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        async with answered(answer(status)):
            pass
    assert type(caught.value) is error


@pytest.mark.parametrize(("asked", "waits"), [("7", timedelta(seconds=7)), ("86400", LONGEST_WAIT)])
async def test_a_server_that_has_too_much_to_do_is_left_alone_for_as_long_as_it_asks_and_not_for_ever(
    asked: str, waits: timedelta
) -> None:
    with pytest.raises(RateLimited) as caught:
        async with answered(answer(429, retry_after=asked)):
            pass
    assert caught.value.retry_after == waits


def test_a_file_that_is_said_to_be_larger_than_it_may_be_is_not_read() -> None:
    limits = FetchLimits(10, 1.0)
    limits.check(None)
    limits.check(10)
    with pytest.raises(FileTooLarge) as caught:
        limits.check(11)
    assert (caught.value.most, caught.value.size) == (10, 11)


class Giver:
    """A sender whose platform gives these files, or fails so."""

    def __init__(self, *gives: bytes | Exception, type: str | None = None) -> None:
        self.gives = [*gives]
        self.type = type
        self.limits: list[FetchLimits] = []

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        self.limits.append(limits)
        given = self.gives.pop(0)
        if isinstance(given, Exception):
            raise given
        yield IncomingFile(_chunks(given), None, self.type)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


class Keeping:
    """A place for blobs that notes what it is given."""

    def __init__(self, away: Exception | None = None) -> None:
        self.away = away
        self.kept: list[bytes] = []
        self.most: list[int] = []

    async def keep(self, chunks: AsyncIterable[bytes], most: int) -> Blob:
        content = b"".join([chunk async for chunk in chunks])
        if self.away is not None:
            raise self.away
        self.kept.append(content)
        self.most.append(most)
        return BLOB


async def fetched(
    giver: object, *media: Media, keeping: Keeping | None = None, settings: MediaSettings | None = None, text: str = ""
) -> Inbound:
    """A message of Telegram with the files that its sender gives."""
    senders = {"telegram": cast(Sender, giver)}
    async with open_public_http() as public:
        blobs = cast(Blobs, keeping or Keeping())
        fetcher = MediaFetcher(blobs, settings or MediaSettings(), senders, public)
        return await fetcher.fetched(Inbound("in_1", "e1", Source("telegram", "c1", user="u1"), text, media))


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (FileTooLarge(20_000_000, 21_000_000), "too large (21 MB, at most 20 MB)"),
        (FileTooLarge(20_000_000), "too large (at most 20 MB)"),
        (CannotFetch("it is no longer there"), "not read: it is no longer there"),
        (NotPublic("its address is not on the public internet"), "not read: its address is not on the public internet"),
        (Denied("bad token"), "not read: Telegram does not give it to us"),
        (Undeliverable("no such file"), "not read: Telegram does not give it to us"),
        (KeyError("a fault of the sender's"), "not read: it could not be fetched"),
    ],
)
async def test_a_file_that_cannot_be_had_is_asked_for_once_and_becomes_a_line_that_says_why(
    error: Exception, note: str
) -> None:
    giver, keeping = Giver(error, PICTURE), Keeping()
    got = await fetched(giver, Media("tg-file:a", "image/png", "a.png"), Media("tg-file:b"), keeping=keeping, text="hi")
    assert got.text == f"hi\n[image: a.png: {note}]" and len(giver.limits) == 2
    assert [media.url for media in got.media] == [str(BLOB)] and keeping.kept == [PICTURE]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Transient("HTTP 502"), [FIRST_WAIT_SECONDS, 2 * FIRST_WAIT_SECONDS]),
        (RateLimited(timedelta(seconds=0.7)), [0.7, 2 * FIRST_WAIT_SECONDS]),
        (RateLimited(timedelta(seconds=3)), [3, 3]),
    ],
)
async def test_an_error_that_passes_is_waited_for_with_growing_delays_and_as_long_as_the_platform_asks(
    error: Exception, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, sleep = list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("workers.media.fetch.asyncio.sleep", noted)
    giver = Giver(*[error] * TRIES, PICTURE)
    got = await fetched(giver, Media("tg-file:a", "image/png", "a.png"))
    assert (got.text, got.media) == ("[image: a.png: not read: it could not be fetched]", ())
    assert slept == waits and len(giver.limits) == TRIES


async def test_while_the_place_for_files_is_away_the_message_waits_and_none_of_its_files_goes_on_being_fetched() -> (
    None
):
    came, ended = asyncio.Event(), asyncio.Event()

    class Slow(Giver):
        @asynccontextmanager
        async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
            if media.url == "tg-file:slow":
                came.set()
                await ended.wait()
            yield IncomingFile(_chunks(PICTURE))

    keeping = Keeping(away=Unavailable("the bucket is away"))
    fetching = asyncio.create_task(fetched(Slow(), Media("tg-file:a"), Media("tg-file:slow"), keeping=keeping))
    await came.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not fetching.done()
    ended.set()
    with pytest.raises(Unavailable):
        await fetching


@pytest.mark.parametrize(("of_settings", "most"), [(5, 5), (10**9, None)])
async def test_a_file_may_be_as_large_as_the_settings_and_its_platform_allow(
    of_settings: int, most: int | None
) -> None:
    given = PLATFORMS["telegram"].media
    assert given is not None
    giver, keeping = Giver(b"hello"), Keeping()
    settings = MediaSettings(max_bytes=of_settings, fetch_seconds=7)
    await fetched(giver, Media("tg-file:a"), keeping=keeping, settings=settings)
    assert giver.limits == [FetchLimits(most or given.fetched, 7)] and keeping.most == [most or given.fetched]


@pytest.mark.parametrize(
    ("content", "said", "of_server", "kept"),
    [
        (PICTURE, "image/jpeg", None, "image/png"),
        (FILM, "Image/GIF", None, "video/mp4"),  # what moves is often called a picture
        (FILM, "audio/mp4", None, "audio/mp4"),
        (SOUND, "video/mp4", None, "audio/mpeg"),
        (PICTURE, "video/mp4", None, "image/png"),
        (SOUND, "IMAGE/png", None, "it is no image, although it says so"),
        (PICTURE, "audio/mpeg", None, "it is no audio, although it says so"),
        (b"hello", "video/mp4", None, "it is no video, although it says so"),
        (PICTURE, "text/csv", None, "image/png"),
        (b"a,b", "text/csv", "text/plain", "text/csv"),
        (b"a,b", None, "text/csv", "text/csv"),
        (b"a,b", None, "image/png", "text/plain"),  # nobody said so but the server
        (b"a,b", None, None, "text/plain"),
    ],
)
async def test_what_a_file_is_follows_from_its_bytes_and_one_that_lies_is_not_kept(
    content: bytes, said: str | None, of_server: str | None, kept: str
) -> None:
    got = await fetched(Giver(content, type=of_server), Media("tg-file:a", said, "a"))
    if "/" in kept:
        assert [media.type for media in got.media] == [kept] and got.text == ""
    else:
        assert got.media == () and kept in got.text


async def test_keeping_a_file_does_not_count_as_fetching_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the disk or the bucket takes, a file that has come is not late."""
    opened, timeout = list[asyncio.Timeout](), asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        opened.append(timeout(seconds))
        return opened[-1]

    class Slow(Keeping):
        async def keep(self, chunks: AsyncIterable[bytes], most: int) -> Blob:
            blob = await super().keep(chunks, most)
            assert [limit.when() for limit in opened] == [None]
            return blob

    monkeypatch.setattr("workers.media.fetch.asyncio.timeout", noted)
    got = await fetched(Giver(PICTURE), Media("tg-file:a"), keeping=Slow())
    assert got.text == "" and len(got.media) == 1


async def test_a_platform_that_gives_no_files_is_asked_for_none_and_a_kept_file_is_not_fetched_again() -> None:
    got = await fetched(object(), Media("tg-file:a", "image/png"), kept := Media(str(BLOB), "text/plain", "a.txt"))
    assert got.text == "[image: not read: files of this platform are not fetched]" and got.media == (kept,)


async def test_a_sender_without_an_id_shares_the_slots_of_their_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.media.fetch.OF_ONE_SENDER", 1)
    under_way, most, go_on = 0, 0, asyncio.Event()

    class Counting(Giver):
        @asynccontextmanager
        async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await go_on.wait()
            under_way -= 1
            yield IncomingFile(_chunks(PICTURE))

    anonymous, ann = Source("telegram", "c1"), Source("telegram", "c1", user="u1")
    others = (anonymous, replace(anonymous, chat="c2"), replace(anonymous, account="b2"), ann)
    ann_elsewhere = Source("telegram", "c3", user="u2", user_alt="u1")  # by the id that is the same everywhere
    async with open_public_http() as public:
        senders: Any = {"telegram": Counting()}
        fetcher = MediaFetcher(cast(Blobs, Keeping()), MediaSettings(), senders, public)
        sources = [*others, *others, ann_elsewhere]
        message = Inbound("in_1", "e1", ann, "", (Media("tg-file:a"), Media("tg-file:b")))
        tasks = [asyncio.create_task(fetcher.fetched(replace(message, source=source))) for source in sources]
        for _ in range(200):
            await asyncio.sleep(0)
        assert under_way == 4  # one of each
        go_on.set()
        assert [len(got.media) for got in await asyncio.gather(*tasks)] == [2] * 9
    assert most == 4 and fetcher._of_senders._waiting == {}  # whoever has no file under way costs nothing

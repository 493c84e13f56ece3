"""Files that agents answer with: what is uploaded, and what the chat reads where nothing can be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.blobs.address import Blob
from shared.blobs.directory import DirectoryBlobs
from shared.messages import Media
from shared.multipart import Upload
from shared.platforms import PLATFORMS
from shared.platforms.facts import Facts, MediaLimits
from tests.support.uploads import a_png
from workers.media.outgoing import Uploads, refusal

TAKES = replace(PLATFORMS["telegram"], media=MediaLimits(fetched=10, sent=1000))
TAKES_NONE = replace(TAKES, media=None)
OF_1000 = Media(f"blob:{'0' * 64}/1000", "text/plain", "a.txt")
OF_1001 = Media(f"blob:{'0' * 64}/1001", "text/plain", "a.txt")
ELSEWHERE = Media("https://files.example/a.txt", "text/plain", "a.txt")


@pytest.mark.parametrize(
    ("media", "facts", "line"),
    [
        (OF_1000, TAKES, None),
        (OF_1001, TAKES, "[file: a.txt: too large for Telegram (1 KB, at most 1 KB)]"),
        (OF_1000, TAKES_NONE, "[file: a.txt: files cannot be sent by Telegram]"),
        (ELSEWHERE, TAKES_NONE, None),  # an address is text, which every platform takes
    ],
)
async def test_a_file_that_its_platform_does_not_take_is_a_line_that_says_why(
    media: Media, facts: Facts, line: str | None, tmp_path: Path
) -> None:
    assert refusal(media, facts) == line
    if line is not None:
        assert await Uploads(DirectoryBlobs(tmp_path), facts).of(media) == line


async def test_an_address_is_not_uploaded_and_a_file_that_was_removed_is_a_line(tmp_path: Path) -> None:
    uploads = Uploads(DirectoryBlobs(tmp_path), TAKES)
    assert await uploads.of(ELSEWHERE) is None
    assert await uploads.of(OF_1000) == "[file: a.txt: no longer kept]"


@pytest.mark.parametrize(
    ("content", "said", "type", "name"),
    [
        (a_png(600), "text/plain", "image/png", "image.png"),
        (b"a,b\n", "Text/CSV", "text/csv", "text.csv"),
        (b"a,b\n", None, "text/plain", "text.txt"),
        (b"a,b\n", "text/csv\r\nx-evil: 1", "text/plain", "text.txt"),
        (b"", "text/csv", "text/csv", "text.csv"),
    ],
)
async def test_an_upload_is_what_its_first_bytes_say_and_has_no_type_that_could_be_more_than_one(
    content: bytes, said: str | None, type: str, name: str, tmp_path: Path
) -> None:
    blobs = DirectoryBlobs(tmp_path)
    blob = await blobs.keep(_chunks(content), 10_000)
    upload = await Uploads(blobs, TAKES).of(Media(str(blob), said))
    assert isinstance(upload, Upload)
    assert (upload.name, upload.type, upload.size) == (name, type, len(content))
    for _ in range(2):  # an attempt that is repeated sends all of it again
        assert b"".join([chunk async for chunk in upload.chunks()]) == content


async def test_of_a_large_file_the_beginning_decides_what_it_is(tmp_path: Path) -> None:
    class OneChunk(DirectoryBlobs):
        async def read(self, blob: Blob) -> AsyncIterator[bytes]:
            yield b"x" * 512 + b"\0" * 400  # a text for as long as anybody looks

    upload = await Uploads(OneChunk(tmp_path), TAKES).of(Media(f"blob:{'0' * 64}/912", "text/x-log", "a.log"))
    assert isinstance(upload, Upload) and upload.type == "text/x-log"


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content

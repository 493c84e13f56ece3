"""Files in a directory, named by what is in them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from shared.agent.files import BlobFiles
from shared.agent.turn import Turn
from shared.agent.wire import decode_turn, encode_turn
from shared.blobs.address import Blob, blob_at
from shared.blobs.contract import SHARDS, FileTooLarge, NotKept
from shared.blobs.directory import BLOCK_BYTES, DirectoryBlobs
from shared.messages import Media

HOUR = timedelta(hours=1)


@pytest.fixture
def blobs(tmp_path: Path) -> DirectoryBlobs:
    return DirectoryBlobs(tmp_path / "blobs")


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def read(blobs: DirectoryBlobs, blob: Blob) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(blob)])


def files(blobs: DirectoryBlobs) -> list[str]:
    return sorted(path.name for path in blobs.root.rglob("*") if path.is_file() and path.name != ".lock")


async def unused(blobs: DirectoryBlobs, age: timedelta = HOUR) -> list[str]:
    return [digest for shard in range(SHARDS) for digest in await blobs.unused_for(age, shard, "", 10)]


def grow_old(blobs: DirectoryBlobs, digest: str) -> None:
    long_ago = time.time() - 2 * HOUR.total_seconds()
    os.utime(blobs.root / digest[:2] / digest, (long_ago, long_ago))


async def test_a_file_is_named_by_its_content_and_read_back_whole(blobs: DirectoryBlobs) -> None:
    content = os.urandom(3 * BLOCK_BYTES + 17)
    blob = await blobs.keep(pieces(content[:5], content[5:BLOCK_BYTES], content[BLOCK_BYTES:]), len(content))
    assert blob == Blob(sha256(content).hexdigest(), len(content))
    assert await read(blobs, blob) == content and await blobs.has(blob)
    assert blob_at(str(blob)) == blob and str(blobs.root) not in str(blob)


async def test_a_file_is_for_its_owner_alone(blobs: DirectoryBlobs) -> None:
    await blobs.keep(pieces(b"private"), 100)
    assert {path.stat().st_mode & 0o077 for path in blobs.root.rglob("*")} == {0}


async def test_the_same_content_is_kept_once(blobs: DirectoryBlobs) -> None:
    first, second = await asyncio.gather(blobs.keep(pieces(b"same"), 100), blobs.keep(pieces(b"sa", b"me"), 100))
    assert first == second and files(blobs) == [first.digest]


async def test_more_than_is_allowed_leaves_nothing(blobs: DirectoryBlobs) -> None:
    with pytest.raises(FileTooLarge):
        await blobs.keep(pieces(b"x" * BLOCK_BYTES, b"x" * BLOCK_BYTES), BLOCK_BYTES + 1)
    assert files(blobs) == []


async def test_a_source_that_fails_or_is_given_up_leaves_nothing(blobs: DirectoryBlobs) -> None:
    began, never = asyncio.Event(), asyncio.Event()

    async def cut() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError

    async def slow() -> AsyncIterator[bytes]:
        yield b"half"
        began.set()
        await never.wait()

    with pytest.raises(ConnectionError):
        await blobs.keep(cut(), 100)
    task = asyncio.create_task(blobs.keep(slow(), 100))
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert files(blobs) == []


async def test_what_is_not_here_is_not_read(blobs: DirectoryBlobs) -> None:
    blob = await blobs.keep(pieces(b"content"), 100)
    for other in (Blob("0" * 64, 7), Blob(blob.digest, 8)):
        with pytest.raises(NotKept):
            await read(blobs, other)
        assert not await blobs.has(other)


@pytest.mark.parametrize(
    "address",
    ["blob:../../etc/passwd/3", f"blob:{'a' * 63}/3", f"blob:{'A' * 64}/3", f"blob:{'a' * 64}/-1", "https://x", ""],
)
def test_only_a_digest_and_a_size_are_an_address(address: str) -> None:
    assert blob_at(address) is None


async def test_only_files_that_were_kept_long_ago_are_found_and_removed(blobs: DirectoryBlobs) -> None:
    old, young = await blobs.keep(pieces(b"old"), 100), await blobs.keep(pieces(b"young"), 100)
    grow_old(blobs, old.digest)
    assert await unused(blobs) == [old.digest]
    assert not await blobs.remove(young.digest, HOUR) and await blobs.remove(old.digest, HOUR)
    assert not await blobs.remove(old.digest, HOUR)  # it is gone
    assert files(blobs) == [young.digest]


async def test_a_file_that_is_kept_again_meanwhile_is_not_removed(blobs: DirectoryBlobs) -> None:
    """The housekeeper has found that nothing refers to it, and a turn fetches the same file just then."""
    blob = await blobs.keep(pieces(b"content"), 100)
    grow_old(blobs, blob.digest)
    [found] = await unused(blobs)
    await blobs.keep(pieces(b"content"), 100)
    assert not await blobs.remove(found, HOUR)
    assert await read(blobs, blob) == b"content"


async def test_many_files_of_a_shard_are_looked_at_in_turns(blobs: DirectoryBlobs) -> None:
    contents = [str(n).encode() for n in range(3000) if sha256(str(n).encode()).hexdigest().startswith("00")]
    in_shard = sorted([(await blobs.keep(pieces(content), 100)).digest for content in contents])
    for digest in in_shard:
        grow_old(blobs, digest)
    found: list[str] = []
    while some := await blobs.unused_for(HOUR, 0, found[-1] if found else "", 1):
        found += some
    assert found == in_shard and len(found) > 1


async def test_what_a_writer_left_that_died_is_removed(blobs: DirectoryBlobs) -> None:
    await blobs.keep(pieces(b"content"), 100)
    left = blobs.root / "new" / "left"
    left.write_bytes(b"half")
    await unused(blobs)
    assert left.exists()
    os.utime(left, (0, 0))
    await unused(blobs)
    assert not left.exists()


async def test_an_agent_reads_and_adds_files_also_in_another_process_of_the_machine(blobs: DirectoryBlobs) -> None:
    files = BlobFiles(blobs)
    chart = await files.add(b"\x89PNG\r\n\x1a\n rest", "chart.png")
    there = decode_turn(encode_turn(Turn("t", "agent:main:api:dm:c1", "s", (), (), files=files)))
    assert (chart.type, await there.files.read(chart), await there.files.has(chart)) == (
        "image/png",
        b"\x89PNG\r\n\x1a\n rest",
        True,
    )
    answer = await there.files.add(pieces(b"a,", b"b"), "t.csv", "text/csv")
    assert (answer.type, await files.read(answer)) == ("text/csv", b"a,b")


async def test_without_a_place_for_files_none_is_read() -> None:
    turn = decode_turn(encode_turn(Turn("t", "agent:main:api:dm:c1", "s", (), ())))
    media = Media(f"blob:{'0' * 64}/1", "image/png")
    assert not await turn.files.has(media)
    for asked in (turn.files.read(media), turn.files.add(b"x", "x.txt")):
        with pytest.raises(NotKept):
            await asked

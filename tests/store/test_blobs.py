"""Files in a directory and in a bucket, named by what is in them. Both places keep the same promises."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import obstore
import pytest

from shared.agent.files import BlobFiles
from shared.agent.turn import Turn
from shared.agent.wire import decode_turn, encode_turn
from shared.blobs.address import Blob, blob_at
from shared.blobs.bucket import PIECE_BYTES, Copy
from shared.blobs.contract import BLOCK_BYTES, Blobs, FileTooLarge, NotKept
from shared.blobs.directory import DirectoryBlobs
from shared.errors import Unavailable
from shared.messages import Media
from tests.support.buckets import BUCKET, KEY_ID, SECRET, BucketServer

HOUR = timedelta(hours=1)


class DirectoryPlace:
    """A directory, and what a test does to it behind its back."""

    def __init__(self, root: Path) -> None:
        self.blobs = DirectoryBlobs(root)
        self._root = root

    async def kept(self) -> list[str]:
        """The digests of what is kept. Anything else that was left there counts too."""
        return sorted(path.name for path in self._root.rglob("*") if path.is_file() and path.name != ".lock")

    async def grow_old(self, digest: str) -> None:
        long_ago = time.time() - 2 * HOUR.total_seconds()
        os.utime(self._root / digest[:2] / digest, (long_ago, long_ago))


class BucketPlace:
    """A bucket of a real object store."""

    def __init__(self, server: BucketServer, directory: Path) -> None:
        self.blobs = server.blobs(directory)
        self._store = self.blobs._store
        self._arriving = directory / "arriving"

    async def names(self) -> list[str]:
        return sorted([about["path"] async for listed in obstore.list(self._store) for about in listed])

    async def kept(self) -> list[str]:
        left = [path.name for path in self._arriving.rglob("*")]
        return sorted({name.split("/")[1] for name in await self.names()} | set(left))

    async def grow_old(self, digest: str) -> None:
        long_ago = int((time.time() - 2 * HOUR.total_seconds()) * 1000)
        for name in await self.names():
            if digest in name:
                shard, _, copy = name.split("/")
                await obstore.rename_async(self._store, name, f"{shard}/{digest}/{long_ago}{copy[13:]}")


Place = DirectoryPlace | BucketPlace


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "blobs")
    return BucketPlace(request.getfixturevalue("bucket_server"), tmp_path)


@pytest.fixture
def blobs(place: Place) -> Blobs:
    return place.blobs


@pytest.fixture
def bucket(bucket_server: BucketServer, tmp_path: Path) -> BucketPlace:
    return BucketPlace(bucket_server, tmp_path)


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def read(blobs: Blobs, blob: Blob) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(blob)])


async def unused(place: Place, age: timedelta = HOUR) -> list[str]:
    """What the housekeeper would ask about, in the shards that have something: a look at all 256 takes a bucket seconds."""
    shards = sorted({int(digest[:2], 16) for digest in await place.kept() if len(digest) == 64})
    return [digest for shard in shards for digest in await place.blobs.unused_for(age, shard, "", 10)]


async def test_a_file_is_named_by_its_content_and_read_back_whole(blobs: Blobs) -> None:
    content = os.urandom(3 * BLOCK_BYTES + 17)
    blob = await blobs.keep(pieces(content[:5], content[5:BLOCK_BYTES], content[BLOCK_BYTES:]), len(content))
    assert blob == Blob(sha256(content).hexdigest(), len(content))
    assert await read(blobs, blob) == content and await blobs.has(blob)
    assert blob_at(str(blob)) == blob


async def test_a_file_that_goes_up_in_pieces_is_read_back_whole(bucket: BucketPlace) -> None:
    content = os.urandom(2 * PIECE_BYTES + 17)
    blob = await bucket.blobs.keep(pieces(content), len(content))
    assert await read(bucket.blobs, blob) == content


async def test_an_empty_file_is_a_file(blobs: Blobs) -> None:
    blob = await blobs.keep(pieces(), 100)
    assert blob.size == 0 and await blobs.has(blob) and await read(blobs, blob) == b""


async def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    await DirectoryBlobs(tmp_path / "blobs").keep(pieces(b"private"), 100)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "blobs").rglob("*")} == {0}


async def test_the_same_content_is_kept_once(blobs: Blobs, place: Place) -> None:
    first, second = await asyncio.gather(blobs.keep(pieces(b"same"), 100), blobs.keep(pieces(b"sa", b"me"), 100))
    assert first == second and await place.kept() == [first.digest]


async def test_more_than_is_allowed_leaves_nothing(blobs: Blobs, place: Place) -> None:
    with pytest.raises(FileTooLarge):
        await blobs.keep(pieces(b"x" * BLOCK_BYTES, b"x" * BLOCK_BYTES), BLOCK_BYTES + 1)
    assert await place.kept() == []


async def test_a_source_that_fails_or_is_given_up_leaves_nothing(blobs: Blobs, place: Place) -> None:
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
    assert await place.kept() == []


async def test_what_is_not_here_is_not_read(blobs: Blobs) -> None:
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


async def test_only_files_that_were_kept_long_ago_are_found_and_removed(blobs: Blobs, place: Place) -> None:
    old, young = await blobs.keep(pieces(b"old"), 100), await blobs.keep(pieces(b"young"), 100)
    await place.grow_old(old.digest)
    assert await unused(place) == [old.digest]
    assert not await blobs.remove(young.digest, HOUR) and await blobs.remove(old.digest, HOUR)
    assert not await blobs.remove(old.digest, HOUR)  # it is gone
    assert await place.kept() == [young.digest]


async def test_a_file_that_is_kept_again_meanwhile_is_not_removed(blobs: Blobs, place: Place) -> None:
    """The housekeeper has found that nothing refers to it, and a turn fetches the same file just then."""
    blob = await blobs.keep(pieces(b"content"), 100)
    await place.grow_old(blob.digest)
    [found] = await unused(place)
    await blobs.keep(pieces(b"content"), 100)
    assert not await blobs.remove(found, HOUR)
    assert await read(blobs, blob) == b"content"


async def test_many_files_of_a_shard_are_looked_at_in_turns(blobs: Blobs, place: Place) -> None:
    contents = [str(n).encode() for n in range(3000) if sha256(str(n).encode()).hexdigest().startswith("00")]
    in_shard = sorted([(await blobs.keep(pieces(content), 100)).digest for content in contents])
    for digest in in_shard:
        await place.grow_old(digest)
    found: list[str] = []
    while some := await blobs.unused_for(HOUR, 0, found[-1] if found else "", 1):
        found += some
    assert found == in_shard and len(found) > 1


async def test_what_a_writer_left_that_died_is_removed(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    await place.blobs.keep(pieces(b"content"), 100)
    left = tmp_path / "new" / "left"
    left.write_bytes(b"half")
    await unused(place)
    assert left.exists()
    os.utime(left, (0, 0))
    await unused(place)
    assert not left.exists()


async def test_an_agent_reads_and_adds_files_also_in_another_process_of_the_machine(tmp_path: Path) -> None:
    files = BlobFiles(DirectoryBlobs(tmp_path))
    chart = await files.add(b"\x89PNG\r\n\x1a\n rest", "chart.png")
    there = decode_turn(encode_turn(Turn("t", "agent:main:api:dm:c1", "s", (), (), files=files)))
    assert (chart.type, await there.files.read(chart), await there.files.has(chart)) == (
        "image/png",
        b"\x89PNG\r\n\x1a\n rest",
        True,
    )
    answer = await there.files.add(pieces(b"a,", b"b"), "t.csv", "text/csv")
    assert (answer.type, await files.read(answer)) == ("text/csv", b"a,b")


# Of a bucket alone.


async def test_of_several_copies_the_youngest_stays(bucket: BucketPlace) -> None:
    blob = await bucket.blobs.keep(pieces(b"content"), 100)
    await bucket.grow_old(blob.digest)
    await bucket.blobs.keep(pieces(b"content"), 100)
    await bucket.blobs.keep(pieces(b"content"), 100)
    assert len(await bucket.names()) == 3
    assert await unused(bucket) == [] and len(await bucket.names()) == 2  # the others are young: they stay for now
    await bucket.grow_old(blob.digest)
    assert await unused(bucket) == [blob.digest] and len(await bucket.names()) == 1
    assert await read(bucket.blobs, blob) == b"content"


async def test_a_file_that_is_kept_between_the_look_and_the_removal_survives(
    bucket: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = await bucket.blobs.keep(pieces(b"content"), 100)
    await bucket.grow_old(blob.digest)
    delete = bucket.blobs._delete

    async def kept_first(copies: Sequence[Copy]) -> None:
        await bucket.blobs.keep(pieces(b"content"), 100)
        await delete(copies)

    monkeypatch.setattr(bucket.blobs, "_delete", kept_first)
    await bucket.blobs.remove(blob.digest, HOUR)
    assert await read(bucket.blobs, blob) == b"content"


async def test_a_reader_whose_copy_was_just_replaced_reads_the_younger_one(
    bucket: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = await bucket.blobs.keep(pieces(b"content"), 100)
    [gone] = await bucket.names()
    youngest = bucket.blobs._youngest

    async def replaced(asked: Blob) -> Copy | None:
        found = await youngest(asked)
        if gone in await bucket.names():
            await bucket.blobs.keep(pieces(b"content"), 100)
            await obstore.delete_async(bucket.blobs._store, gone)
        return found

    monkeypatch.setattr(bucket.blobs, "_youngest", replaced)
    assert await read(bucket.blobs, blob) == b"content"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "http://127.0.0.1:1"}, "does not answer"),
        ({"secret_access_key": "another-secret-1"}, "refuses our key, or the key may not read and list the bucket"),
        ({"url": "s3://there-is-none/files"}, "has no such bucket, or the key may not list it"),
    ],
)
async def test_a_store_that_is_away_or_refuses_us_is_an_outage_and_no_missing_file(
    changes: dict[str, object], words: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    blobs, blob = bucket_server.blobs(tmp_path, **changes), Blob("0" * 64, 1)
    assert await blobs.check() == words
    calls = [read(blobs, blob), blobs.has(blob), blobs.remove(blob.digest, HOUR), blobs.unused_for(HOUR, 0, "", 1)]
    if "url" not in changes:  # this server makes a bucket that it lacks
        calls.append(blobs.keep(pieces(b"content"), 100))
    for call in calls:
        with pytest.raises(Unavailable) as raised:
            await call
        assert SECRET not in str(raised.value) and raised.value.__cause__ is None
    assert [*tmp_path.rglob("arriving/*")] == []


async def test_a_store_that_answers_has_nothing_wrong_with_it(bucket: BucketPlace) -> None:
    assert await bucket.blobs.check() is None


async def test_the_key_is_in_no_representation(bucket_server: BucketServer, tmp_path: Path) -> None:
    blobs = bucket_server.blobs(tmp_path)
    shown = f"{blobs._store!r} {blobs._store.config} {blobs!r} {bucket_server.settings()!r}"
    assert BUCKET in shown and SECRET not in shown and KEY_ID not in shown


async def test_what_the_environment_says_of_other_stores_changes_nothing(
    bucket_server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_SESSION_TOKEN": "another",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }
    for name, other in others.items():
        monkeypatch.setenv(name, other)
    blobs = bucket_server.blobs(tmp_path)
    blob = await blobs.keep(pieces(b"content"), 100)
    assert await read(blobs, blob) == b"content"


async def test_without_a_place_for_files_none_is_read() -> None:
    turn = decode_turn(encode_turn(Turn("t", "agent:main:api:dm:c1", "s", (), ())))
    media = Media(f"blob:{'0' * 64}/1", "image/png")
    assert not await turn.files.has(media)
    for asked in (turn.files.read(media), turn.files.add(b"x", "x.txt")):
        with pytest.raises(NotKept):
            await asked

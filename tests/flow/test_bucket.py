"""Files in a bucket instead of a directory: several machines share conversations, and the store's trouble costs time only."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from pydantic import SecretStr

from shared import log
from shared.agent.events import Done, Event
from shared.agent.files import BlobFiles
from shared.agent.turn import Turn
from shared.blobs.address import blob_at
from shared.blobs.bucket import BucketBlobs
from shared.blobs.contract import SHARDS
from shared.errors import Unavailable
from shared.messages import Inbound, Media, Reply, Source
from shared.operating.forgetting import forget_person
from shared.person import Person
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.telegram import TelegramSettings
from shared.settings import MediaSettings, Settings
from tests.flow.test_media import ANN, SECRET, Drawing, Looking, a_photo, bring, said
from tests.store.books import ask
from tests.support.buckets import KEY_ID, BucketServer
from tests.support.buckets import SECRET as BUCKET_SECRET
from tests.support.door import Door, open_door
from tests.support.proxy import Proxy
from tests.support.servers import Databases
from tests.support.telegram import TOKEN, FakeTelegram, open_telegram
from tests.support.uploads import a_png
from tests.support.working import working
from workers.agents.isolated import Isolated
from workers.upkeep.blobs import UnreferredBlobs

MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
async def network(bucket_server: BucketServer) -> AsyncIterator[Proxy]:
    """The way to the object store."""
    proxy = Proxy(int(bucket_server.endpoint.rpartition(":")[2]))
    await proxy.open()
    yield proxy
    proxy.cut()


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram, bucket_server: BucketServer, network: Proxy) -> Settings:
    telegram = TelegramSettings(
        token=SecretStr(TOKEN),
        api_url=fake.url,
        allowed_users=(str(ANN),),
        webhook_secret=(SecretStr(SECRET),),
    )
    blobs = bucket_server.settings(endpoint=f"http://127.0.0.1:{network.port}")
    return make_settings(telegram=telegram, titles=False, blobs=blobs, max_attempts=1, delivery_max_attempts=1)


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


async def names(pipe: Pipeline) -> list[str]:
    assert isinstance(pipe.blobs, BucketBlobs)
    return [about["path"] async for listed in obstore.list(pipe.blobs._store) for about in listed]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_file_that_one_machine_fetched_is_read_and_sent_by_another(
    door: Door, pipe: Pipeline, fake: FakeTelegram, tmp_path: Path
) -> None:
    fake.files["AgAC"] = content = a_png(40_000)
    elsewhere = pipe.settings.model_copy(update={"data_dir": tmp_path / "another machine"})
    agent = Looking()
    async with working(pipe, agent):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: f"look [{len(content)}]" in fake.texts(ANN))
    async with open_pipeline(elsewhere) as other, working(other, Looking()):
        await bring(door, said(text="/retry"))
        await fake.until(lambda fake: fake.texts(ANN) == [f"look [{len(content)}]"] * 2)
    async with working(pipe, Drawing(a_png(100_000))):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.uploaded)
    assert len(fake.of("download")) == 1 and fake.uploaded[0].content == a_png(100_000)
    everything = str(await ask(pipe.store, "SELECT * FROM messages, outbox, inbox"))
    assert str(tmp_path) not in everything and "s3://" not in everything
    assert not (tmp_path / "blobs").exists() and [*tmp_path.rglob("arriving/*")] == []


async def test_a_message_waits_for_the_store_without_spending_its_only_attempt(
    door: Door, pipe: Pipeline, fake: FakeTelegram, network: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.files["AgAC"] = content = a_png(40_000)
    network.cut()
    log.setup("debug", "test")  # it is told no secrets, so it hides none
    written = io.StringIO()

    def waits() -> bool:
        written.write(capsys.readouterr().err)
        return "wake put off" in written.getvalue() and "the object store does not answer" in written.getvalue()

    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"))
        await until(waits)
        assert fake.texts(ANN) == []
        await network.open()
        await fake.until(lambda fake: fake.texts(ANN))
    assert fake.texts(ANN) == [f"look [{len(content)}]"]
    [message] = await ask(pipe.store, "SELECT state, attempts FROM inbox")
    assert (message["state"], message["attempts"]) == ("answered", 1) and waits()
    assert BUCKET_SECRET not in written.getvalue() and KEY_ID not in written.getvalue()


async def test_a_reply_waits_for_its_file_without_spending_its_only_attempt(
    door: Door, pipe: Pipeline, fake: FakeTelegram, network: Proxy
) -> None:
    class ThenCut(Drawing):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            async for event in super().run(turn):
                network.cut()
                yield event

    async with working(pipe, ThenCut(a_png(100_000))):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.texts(ANN) == ["here"])
        async with asyncio.timeout(60):
            while not (await ask(pipe.store, "SELECT 1 FROM outbox WHERE attempts > 1")):
                await asyncio.sleep(0.05)
        assert not fake.uploaded
        await network.open()
        await fake.until(lambda fake: fake.uploaded)
    assert fake.uploaded[0].content == a_png(100_000)
    assert not await ask(pipe.store, "SELECT 1 FROM dead")


async def test_a_file_that_breaks_off_while_it_is_sent_is_no_doubtful_send(
    door: Door, pipe: Pipeline, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, broken = pipe.blobs.read, list[Any]()

    async def breaks_off_once(blob: Any) -> AsyncIterator[bytes]:
        sent = 0
        async for chunk in read(blob):
            if sent > 100_000 and not broken:
                broken.append(sent)
                raise Unavailable("the object store does not answer")
            sent += len(chunk)
            yield chunk

    monkeypatch.setattr(pipe.blobs, "read", breaks_off_once)
    async with working(pipe, Drawing(a_png(3_000_000))):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.uploaded)
    assert broken and [file.content for file in fake.uploaded] == [a_png(3_000_000)]
    assert [row["ambiguous"] for row in await ask(pipe.store, "SELECT ambiguous FROM outbox ORDER BY id")] == [0, 0]


async def test_a_file_that_is_gone_from_the_bucket_is_a_note(door: Door, pipe: Pipeline, fake: FakeTelegram) -> None:
    class Losing(Drawing):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            async for event in super().run(turn):
                if isinstance(event, Done):
                    assert isinstance(pipe.blobs, BucketBlobs)
                    for name in await names(pipe):
                        await obstore.delete_async(pipe.blobs._store, name)
                yield event

    async with working(pipe, Losing(a_png())):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    assert fake.texts(ANN) == ["here", "[image: chart.png: no longer kept]"]


async def test_files_of_a_deleted_conversation_leave_the_bucket(door: Door, pipe: Pipeline, fake: FakeTelegram) -> None:
    fake.files["AgAC"] = a_png(2000)
    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: fake.texts(ANN))
    [kept] = await names(pipe)
    shard, digest, copy = kept.split("/")
    assert isinstance(pipe.blobs, BucketBlobs)
    await obstore.rename_async(pipe.blobs._store, kept, f"{shard}/{digest}/{0:013d}{copy[13:]}")
    duty = UnreferredBlobs(pipe)
    duty._shard = int(shard, 16)
    await duty.look()
    assert len(await names(pipe)) == 1  # its conversation refers to it
    [session] = await ask(pipe.store, "SELECT id, version FROM sessions")
    assert await pipe.store.delete(session["id"], session["version"])
    duty._shard = int(shard, 16)
    await duty.look()
    assert await names(pipe) == [] and duty._shard == (int(shard, 16) + 1) % SHARDS


async def test_a_person_who_is_forgotten_leaves_no_file_in_the_bucket_and_an_outage_is_said(
    door: Door, pipe: Pipeline, fake: FakeTelegram, network: Proxy
) -> None:
    fake.files |= {"one": a_png(2000), "two": a_png(3000)}
    person = Person("telegram", str(ANN))
    async with working(pipe, Looking()):
        await bring(door, a_photo("one"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 1)
    assert len(await names(pipe)) == 1
    assert (await forget_person(pipe, person)).files == 1 and await names(pipe) == []
    async with working(pipe, Looking()):
        await bring(door, a_photo("two"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    network.cut()
    with pytest.raises(Unavailable, match="everything else is gone; forget again, or a housekeeper removes"):
        await forget_person(pipe, person)
    assert not await ask(pipe.store, "SELECT 1 FROM messages")


async def test_the_operators_store_may_be_private_and_messages_may_not_name_it(pipe: Pipeline) -> None:
    """The rules for addresses of strangers are not for the store, and the store is no exception from them."""
    from shared.public_http import open_public_http
    from workers.media.fetch import MediaFetcher

    address = f"{pipe.settings.blobs.address}/{pipe.settings.blobs.bucket}/x".replace("http:", "https:")
    inbound = Inbound("in_1", "e1", Source("api", "c1", user="u1"), "look", (Media(address, "image/png", "a.png"),))
    async with open_public_http(()) as public:
        got = await MediaFetcher(pipe.blobs, MediaSettings(), {}, public).fetched(inbound)
    assert got.text == "look\n[image: a.png: not read: its address is not on the public internet]"
    added = await BlobFiles(pipe.blobs).add(b"ours", "a.txt")
    assert await BlobFiles(pipe.blobs).read(added) == b"ours"


async def reading_agent(turn: Turn) -> AsyncIterator[Event]:
    yield Done((Reply(str([len(await turn.files.read(media)) for media in turn.mail[-1].media])),))


async def test_an_isolated_turn_reads_files_of_the_bucket_and_is_handed_no_key(
    pipe: Pipeline, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared.agent.wire import encode_turn

    blobs = pipe.settings.blobs
    names_of = {
        "URL": blobs.url,
        "ENDPOINT": blobs.endpoint,
        "ACCESS_KEY_ID": KEY_ID,
        "SECRET_ACCESS_KEY": BUCKET_SECRET,
    }
    for name, value in names_of.items():
        monkeypatch.setenv(f"KEYTURN_BLOBS__{name}", str(value))
    picture = await BlobFiles(pipe.blobs).add(a_png(5000), "a.png")
    blob = blob_at(picture.url)
    assert blob is not None
    mail = Inbound("in_1", "e1", Source("api", "c1", user="u1"), "look", (picture,))
    turn = Turn("t", "agent:main:api:dm:c1", "s", (), (mail,), files=BlobFiles(pipe.blobs))
    assert BUCKET_SECRET.encode() not in encode_turn(turn)
    isolated = Isolated("tests.flow.test_bucket:reading_agent")
    try:
        async with isolated.started() as agent:
            events = [
                event async for event in agent.run(replace(turn, deadline=asyncio.get_running_loop().time() + 60))
            ]
    finally:
        isolated.close()
    assert isinstance(events[-1], Done) and events[-1].replies[0].text == f"[{blob.size}]"

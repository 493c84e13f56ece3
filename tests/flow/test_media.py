"""Files from the chat to the agent and back: Telegram's, through real Valkey, a real worker and a local Bot API."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from starlette.responses import Response

from shared.agent.events import Done, Event, Row
from shared.agent.turn import Turn
from shared.blobs.address import blob_at
from shared.blobs.directory import DirectoryBlobs
from shared.failpoints import Injected
from shared.messages import Entry, Media, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.telegram import TelegramSettings
from shared.settings import LlmSettings, MediaSettings, Settings
from tests.store.books import ask
from tests.support import anthropic_api
from tests.support.anthropic_api import open_anthropic
from tests.support.door import Door, open_door
from tests.support.openai import KEY, MALFORMED, MODEL, open_provider
from tests.support.servers import Databases
from tests.support.telegram import TOKEN, FakeTelegram, Refused, Trouble, open_telegram
from tests.support.uploads import a_png
from tests.support.working import keeping, working
from workers.agents.llm import LlmAgent
from workers.upkeep.blobs import UnreferredBlobs

SECRET = "canary-hook-secret_1"
ANN = 11
MakeSettings = Callable[..., Settings]
_ids = count(700_000_000)


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    telegram = TelegramSettings(
        token=SecretStr(TOKEN),
        api_url=fake.url,
        allowed_users=(str(ANN),),
        webhook_secret=(SecretStr(SECRET),),
    )
    return make_settings(telegram=telegram, titles=False)


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


def said(**message: Any) -> dict[str, Any]:
    id = next(_ids)
    ann = {"id": ANN, "is_bot": False, "first_name": "Ann"}
    place = {"id": ANN, "type": "private"}
    about = {"message_id": id % 1_000_000 + 1, "date": 1767225600, "from": ann, "chat": place}
    return {"update_id": id, "message": {**about, **message}}


def a_photo(id: str, caption: str = "look", **more: Any) -> dict[str, Any]:
    return said(photo=[{"file_id": id, "file_unique_id": "u", "width": 1, "height": 1}], caption=caption, **more)


def a_document(id: str, name: str, type: str) -> dict[str, Any]:
    return said(document={"file_id": id, "file_unique_id": "u", "file_name": name, "mime_type": type}, caption="read")


async def bring(door: Door, *updates: dict[str, Any]) -> None:
    for update in updates:
        headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
        answer = await door.client.post("/webhooks/telegram", content=orjson.dumps(update), headers=headers)
        assert answer.status_code == 200


class Looking:
    """An agent that reads every file of its mail, and says how many bytes there are."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        sizes = [len(await turn.files.read(media)) for inbound in turn.mail for media in inbound.media]
        text = f"{turn.mail[-1].text} {sizes}"
        yield Row(Entry("assistant", text))
        yield Done((Reply(text),))


async def rows(pipe: Pipeline, role: str = "user") -> list[dict[str, Any]]:
    found = await ask(pipe.store, "SELECT text, data FROM messages WHERE role = :role ORDER BY n", role=role)
    return [{"text": row["text"], **orjson.loads(row["data"])} for row in found]


# In.


async def test_a_photo_is_fetched_before_the_turn_and_history_keeps_its_name_only(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.files["AgAC"] = content = a_png(40_000)
    agent = Looking()
    async with working(pipe, agent):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: f"look [{len(content)}]" in fake.texts(ANN))
    [media] = agent.turns[0].mail[0].media
    [row] = await rows(pipe)
    assert row["media"] == [{"url": media.url, "type": "image/png", "name": "image.png"}]
    blob = blob_at(media.url)
    assert blob is not None and blob.size == len(content)
    assert await pipe.store.blob_references.unreferred([blob.digest]) == []
    everything = str(await ask(pipe.store, "SELECT * FROM messages, outbox, inbox"))
    assert str(pipe.settings.data_dir) not in everything and base64.b64encode(content[:300]).decode() not in everything


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([Response(b"no", 404)], "look\n[image: not read: it is no longer there, or we may not read it (HTTP 404)] []"),
        ([Response(b"<html>", 302, {"location": "http://127.0.0.1:1/"})], "HTTP 302"),
        ([Response(b"<!DOCTYPE html>", 200)], "look\n[image: not read: it is no image, although it says so] []"),
        ([Response(b"", 500)] * 3, "look\n[image: not read: it could not be fetched] []"),
        ([Response(b"", 500)] * 2, "look [80]"),
    ],
)
async def test_a_file_that_cannot_be_had_is_a_note_and_the_message_is_answered(
    door: Door, pipe: Pipeline, fake: FakeTelegram, answers: list[Response], told: str
) -> None:
    fake.files["AgAC"] = a_png()
    fake.downloads += answers
    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: any(told in text for text in fake.texts(ANN)))
    [message] = await ask(pipe.store, "SELECT state, attempts FROM inbox")
    assert (message["state"], message["attempts"]) == ("answered", 1)


async def test_a_file_beyond_the_limit_is_named_with_its_size(door: Door, pipe: Pipeline, fake: FakeTelegram) -> None:
    fake.files |= {"large": a_png(12_000_000), "huge": b"x" * 21_000_000}
    limits = MediaSettings(max_bytes=10_000_000)
    agent = Looking()
    async with open_pipeline(pipe.settings.model_copy(update={"media": limits})) as limited, working(limited, agent):
        await bring(door, a_photo("large"), a_photo("huge"), a_photo("gone"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 3)
    large, huge, nowhere = (turn.mail[0].text for turn in agent.turns)
    assert large == "look\n[image: too large (12 MB, at most 10 MB)]" and not fake.of("download")
    assert "gives bots files of up to 20 MB" in huge and "does not hand it out" in nowhere


async def test_all_photos_of_an_album_reach_the_agent_in_one_turn(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.files |= {f"p{n}": a_png(1000 + n) for n in range(3)}
    agent = Looking()
    async with working(pipe, agent):
        await bring(door, *(a_photo(f"p{n}", "look" if not n else "", media_group_id="7") for n in range(3)))
        await fake.until(lambda fake: fake.texts(ANN))
    assert len(agent.turns) == 1 and len(agent.turns[0].mail[0].media) == 3


async def test_a_retried_message_still_has_its_file(door: Door, pipe: Pipeline, fake: FakeTelegram) -> None:
    fake.files["AgAC"] = content = a_png()
    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"), said(text="/retry"))
        await fake.until(lambda fake: fake.texts(ANN) == [f"look [{len(content)}]"] * 2)
    assert len(fake.of("download")) == 1


@pytest.mark.parametrize("point", ["fetch.before", "fetch.after"])
async def test_a_worker_that_fails_around_the_fetch_answers_once_with_the_file(
    door: Door, pipe: Pipeline, fake: FakeTelegram, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.files["AgAC"] = content = a_png()
    left = [point]

    def reach(reached: str) -> None:
        if reached in left:
            left.remove(reached)
            raise Injected(reached)

    monkeypatch.setattr("shared.stages.reach", reach)
    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: fake.texts(ANN))
    assert left == [] and fake.texts(ANN) == [f"look [{len(content)}]"]


# To a model.


@pytest.fixture
def picture(fake: FakeTelegram) -> bytes:
    fake.files["AgAC"] = a_png(300_000)
    return fake.files["AgAC"]


def shown_pictures(request: dict[str, Any]) -> list[bytes]:
    blocks = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
    urls = [block["image_url"]["url"] for block in blocks if block["type"] == "image_url"]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True) for url in urls]


def the_llm(url: str, **config: Any) -> LlmAgent:
    return LlmAgent(LlmSettings(model=MODEL, base_url=url, api_key=SecretStr(KEY), **config))


async def test_a_model_sees_a_picture_also_in_later_turns(
    door: Door, pipe: Pipeline, fake: FakeTelegram, picture: bytes
) -> None:
    async with open_provider(answer=lambda _: "seen") as provider, working(pipe, the_llm(provider.url)):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 1)
        await bring(door, said(text="and now?"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    first, second = (request.body for request in provider.requests)
    assert shown_pictures(first) == [picture] and shown_pictures(second) == [picture]
    [user] = [message for message in first["messages"] if message["role"] == "user"]
    assert user["content"][0]["text"] == "look\n[image: image.png]"


async def test_a_model_that_reads_text_only_sees_a_breadcrumb(
    door: Door, pipe: Pipeline, fake: FakeTelegram, picture: bytes
) -> None:
    async with open_provider(answer=lambda _: "seen") as provider, working(pipe, the_llm(provider.url, images=0)):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: fake.texts(ANN))
    [user] = [message for message in provider.requests[0].body["messages"] if message["role"] == "user"]
    assert user["content"] == "look\n[image: image.png]"


async def test_a_model_that_refuses_pictures_is_asked_again_with_a_breadcrumb(
    door: Door, pipe: Pipeline, fake: FakeTelegram, picture: bytes
) -> None:
    async with open_provider(MALFORMED, answer=lambda _: "seen") as provider, working(pipe, the_llm(provider.url)):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: fake.texts(ANN))
    refused, taken = (request.body for request in provider.requests)
    assert shown_pictures(refused) == [picture]
    assert taken["messages"][-1] == {"role": "user", "content": "look\n[image: image.png]"}


async def test_a_model_of_a_provider_of_another_format_sees_the_picture_too(
    door: Door, pipe: Pipeline, fake: FakeTelegram, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_anthropic(answer=lambda _: [{"type": "text", "text": "seen"}]) as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        settings = LlmSettings(model="anthropic:claude-sonnet-5-5", api_key=SecretStr(anthropic_api.KEY))
        async with working(pipe, LlmAgent(settings)):
            await bring(door, a_photo("AgAC"))
            await fake.until(lambda fake: fake.texts(ANN) == ["seen"])
    text, image = provider.requests[0].last
    assert text["text"] == "look\n[image: image.png]"
    assert image["source"]["media_type"] == "image/png" and base64.b64decode(image["source"]["data"]) == picture


async def test_a_text_document_is_read_to_the_model_up_to_its_limit(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.files["doc"] = b"line one\n" + b"x" * 5000
    async with (
        open_provider(answer=lambda _: "seen") as provider,
        working(pipe, the_llm(provider.url, document_characters=20)),
    ):
        await bring(door, a_document("doc", "notes.txt", "text/plain"))
        await fake.until(lambda fake: fake.texts(ANN))
    [user] = [message for message in provider.requests[0].body["messages"] if message["role"] == "user"]
    assert user["content"].startswith(
        "read\n[file: notes.txt]\nline one\nxxxxxxxxxxx\n(The rest of this file is left out.)"
    )
    assert [row["text"] for row in await rows(pipe)] == ["read"]


# Out.


class Drawing:
    """An agent that answers with a file."""

    def __init__(self, content: bytes, name: str = "chart.png", text: str = "here") -> None:
        self._content, self._name, self._text = content, name, text

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        media = await turn.files.add(self._content, self._name)
        yield Done((Reply(self._text, (media,)),))


@pytest.mark.parametrize(
    ("content", "name", "method"),
    [
        (a_png(100_000), "../chart.png", "sendPhoto"),
        (b"a,b\n1,2\n", "table.csv", "sendDocument"),
        (a_png(10_500_000), "poster.png", "sendDocument"),  # too large for a photo
    ],
)
async def test_a_file_of_the_agent_is_uploaded_as_what_it_is(
    door: Door, pipe: Pipeline, fake: FakeTelegram, content: bytes, name: str, method: str
) -> None:
    async with working(pipe, Drawing(content, name)):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.uploaded)
    assert fake.texts(ANN) == ["here"] and len(fake.of(method)) == 1
    [file] = fake.uploaded
    assert (file.name, file.content) == (name.rpartition("/")[2], content)
    states = await ask(pipe.store, "SELECT state FROM outbox")
    assert [row["state"] for row in states] in (["sent", "sent"], ["sent", "sending"])


@pytest.mark.parametrize(
    ("head", "name", "method"),
    [
        (b"RIFF\x24\0\0\0WAVEfmt ", "a.wav", "sendDocument"),
        (b"fLaC\0\0", "a.flac", "sendDocument"),
        (b"ID3\x04\0", "a.mp3", "sendAudio"),
        (b"\0\0\0\x20ftypM4A ", "a.m4a", "sendAudio"),
        (b"OggS\0\x02", "a.ogg", "sendDocument"),
    ],
)
async def test_M18_sounds_are_sent_as_audio_where_telegram_plays_them_and_else_as_documents(
    door: Door, pipe: Pipeline, fake: FakeTelegram, head: bytes, name: str, method: str
) -> None:
    async with working(pipe, Drawing(head + b"\0" * 100, name)):
        await bring(door, said(text="sing"))
        await fake.until(lambda fake: fake.uploaded)
    assert len(fake.of(method)) == 1


async def test_M19_a_file_that_cannot_be_sent_does_not_keep_the_others_back(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    class Careless:
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
            chart = await turn.files.add(a_png(), "chart.png")
            yield Done((Reply("here", (gone, chart)),))

    async with working(pipe, Careless()):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.uploaded)
    assert fake.texts(ANN) == ["here", "[file: gone.txt: no longer kept]"]
    assert [file.name for file in fake.uploaded] == ["chart.png"]


async def test_a_file_that_is_too_large_for_the_platform_is_a_line_of_text(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    async with working(pipe, Drawing(b"x" * 50_000_001, "all.txt")):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.texts(ANN))
    assert fake.texts(ANN) == ["here\n[file: all.txt: too large for Telegram (50 MB, at most 50 MB)]"]


async def test_a_picture_that_telegram_refuses_as_one_goes_as_a_document(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.trouble += [None, Refused(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")]
    async with working(pipe, Drawing(a_png())):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: fake.of("sendDocument"))
    assert len(fake.of("sendPhoto")) == 1


async def test_an_upload_whose_answer_is_lost_is_flagged_and_sent_again(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.trouble += [None, Trouble.CUT]
    async with working(pipe, Drawing(a_png())):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: len(fake.uploaded) == 2)
    assert fake.uploaded[0] == fake.uploaded[1]
    assert [row["ambiguous"] for row in await ask(pipe.store, "SELECT ambiguous FROM outbox ORDER BY id")] == [0, 1]


async def test_a_file_that_is_gone_when_it_is_to_be_sent_is_a_line_of_text(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    class Forgetful(Drawing):
        async def run(self, turn: Turn) -> AsyncIterator[Event]:
            media = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
            yield Done((Reply("here", (media,)),))

    async with working(pipe, Forgetful(b"")):
        await bring(door, said(text="draw"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    assert fake.texts(ANN) == ["here", "[file: gone.txt: no longer kept]"]


# What nothing refers to.


async def test_files_of_a_deleted_conversation_are_removed_and_others_stay(
    door: Door, pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.files["AgAC"] = a_png(2000)
    async with working(pipe, Looking()):
        await bring(door, a_photo("AgAC"))
        await fake.until(lambda fake: fake.texts(ANN))
    blobs = pipe.blobs
    assert isinstance(blobs, DirectoryBlobs)
    [kept] = [path for path in blobs.root.rglob("*") if len(path.name) == 64]
    os.utime(kept, (time.time() - 90_000,) * 2)
    duty = UnreferredBlobs(pipe)
    for _ in range(256):
        await duty.look()
    assert kept.exists()  # its conversation refers to it
    [session] = await ask(pipe.store, "SELECT id, version FROM sessions")
    assert await pipe.store.delete(session["id"], session["version"])
    async with keeping(replace(pipe, settings=pipe.settings.model_copy(update={"sweep_seconds": 0.001}))):
        async with asyncio.timeout(90):
            while kept.exists():
                await asyncio.sleep(0.05)

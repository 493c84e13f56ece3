"""What WhatsApp is sent as what: questions, uploaded files and those of others; and how files are fetched from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.address import Address
from shared.blobs.contract import FileTooLarge
from shared.blobs.directory import DirectoryBlobs
from shared.choices import Choice
from shared.errors import Transient, Undeliverable
from shared.messages import Media, Source
from shared.multipart import Upload
from shared.platforms.whatsapp import FACTS, FILE_SCHEME
from shared.platforms.whatsapp_api import CloudApi
from tests.support.scripted_api import Scripted, a_part
from workers.delivery.whatsapp import WhatsAppSender
from workers.media.incoming import CannotFetch, FetchLimits
from workers.media.outgoing import Uploads

PERSON, TAKEN = "15552223333", {"messages": [{"id": "wamid.9"}]}
CHOICES = (Choice("Approve", "/approve x"), Choice("Deny", "/deny x"))


class Api(Scripted):
    """WhatsApp's, also for files."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.uploaded: list[str] = []
        self.waits: list[Any] = []

    async def post(self, number: str, fields: Any, **about: Any) -> Any:
        self.waits.append(about.get("waits"))
        return self._next(number, fields)

    async def upload(self, number: str, file: Upload) -> str:
        self.uploaded.append(f"{number}/{file.name}")
        return "77001"

    async def media(self, id: str) -> Any:
        return self._next("media", id)

    @asynccontextmanager
    async def download(self, address: str, seconds: float) -> AsyncIterator[Any]:
        self.asked.append((address, seconds))

        async def chunks(most: int | None) -> AsyncIterator[bytes]:
            yield b"hello"

        yield SimpleNamespace(status=200, headers={}, chunks=chunks)


def whatsapp(directory: Path, *answers: Any) -> tuple[WhatsAppSender, Api]:
    api = Api(*answers)
    return WhatsAppSender(cast(CloudApi, api), {"": "N1"}, Uploads(DirectoryBlobs(directory), FACTS)), api


@pytest.mark.parametrize(
    ("beginning", "said", "size", "kind"),
    [
        (b"\xff\xd8\xff", None, 5_000_000, "image"),
        (b"\xff\xd8\xff", None, 5_000_001, "document"),
        (b"\x89PNG\r\n\x1a\n", None, 100, "image"),
        (b"GIF89a", None, 100, "document"),  # a picture that WhatsApp does not take as one
        (b"RIFF\x24\0\0\0WEBPVP8 ", None, 100_000, "sticker"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", None, 100_001, "document"),
        (b"\0\0\0\x20ftypisom", None, 16_000_000, "video"),
        (b"\0\0\0\x20ftypisom", None, 16_000_001, "document"),
        (b"\0\0\0\x20ftypisom", "video/3gpp", 100, "video"),
        (b"\xff\xf1", None, 100, "audio"),
        (b"#!AMR", None, 100, "audio"),
        (b"\0\0\0\x20ftypM4A ", None, 16_000_000, "audio"),
        (b"ID3\x04\0", None, 16_000_001, "document"),
        (b"ID3\x04\0", None, 100, "audio"),
        (b"OggS\0\x02", None, 100, "audio"),
        (b"%PDF-1.7\n", None, 100, "document"),
    ],
)
async def test_a_file_is_uploaded_and_goes_as_what_whatsapp_shows_or_plays_and_else_as_a_document(
    tmp_path: Path, beginning: bytes, said: str | None, size: int, kind: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield beginning.ljust(size, b"\0")

    blob = await DirectoryBlobs(tmp_path).keep(chunks(), 20_000_000)
    sender, api = whatsapp(tmp_path, TAKEN)
    part = a_part("whatsapp", PERSON, text="", media=(Media(str(blob), said, "a.bin"),))
    assert (await sender.send(part)).message_id == "wamid.9"
    [(number, fields)] = api.asked
    assert (number, fields["type"], api.uploaded) == ("N1", kind, ["N1/a.bin"])
    assert fields[kind] == {"id": "77001", **({"filename": "a.bin"} if kind == "document" else {})}


async def test_a_file_that_is_not_kept_any_more_is_a_line_of_text(tmp_path: Path) -> None:
    sender, api = whatsapp(tmp_path, TAKEN)
    gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
    await sender.send(a_part("whatsapp", PERSON, text="", media=(gone,)))
    assert api.asked[0][1]["text"] == {"body": "[file: gone.txt: no longer kept]", "preview_url": False}
    assert api.uploaded == []


@pytest.mark.parametrize(
    ("chat_type", "answers", "kinds"),
    [
        ("dm", [TAKEN], ["interactive"]),
        ("dm", [Undeliverable("no buttons"), TAKEN], ["interactive", "text"]),
        ("group", [TAKEN], ["text"]),  # groups have no buttons
    ],
)
async def test_a_question_has_buttons_and_is_a_text_where_those_are_refused(
    tmp_path: Path, chat_type: str, answers: list[Any], kinds: list[str]
) -> None:
    sender, api = whatsapp(tmp_path, *answers)
    part = a_part("whatsapp", PERSON, chat_type, text="**May I?**", choices=CHOICES)
    assert (await sender.send(part)).message_id == "wamid.9"
    assert [fields["type"] for _, fields in api.asked] == kinds
    assert len({fields["biz_opaque_callback_data"] for _, fields in api.asked}) == 1
    if kinds[0] == "interactive":
        asked = api.asked[0][1]["interactive"]
        assert asked["type"] == "button" and asked["body"] == {"text": "*May I?*"}
        assert [button["reply"] for button in asked["action"]["buttons"]] == [
            {"id": "/approve x", "title": "Approve"},
            {"id": "/deny x", "title": "Deny"},
        ]


async def test_a_question_that_did_not_get_through_is_not_asked_as_a_text_at_once(tmp_path: Path) -> None:
    sender, api = whatsapp(tmp_path, Transient("HTTP 502"))
    with pytest.raises(Transient):
        await sender.send(a_part("whatsapp", PERSON, text="May I?", choices=CHOICES, waits=3))
    assert len(api.asked) == 1 and api.waits == [3]


@pytest.mark.parametrize("size", [5, None, "5"])
async def test_a_file_that_somebody_sent_is_fetched_from_the_address_that_whatsapp_names(
    tmp_path: Path, size: Any
) -> None:
    sender, api = whatsapp(tmp_path, {"url": "https://lookaside.example/1", "file_size": size})
    async with sender.file(Media(f"{FILE_SCHEME}77001"), Source("whatsapp", PERSON), FetchLimits(5, 7.0)) as file:
        assert b"".join([chunk async for chunk in file.chunks]) == b"hello"
    assert api.asked == [("media", "77001"), ("https://lookaside.example/1", 7.0)]


@pytest.mark.parametrize(
    ("url", "answer", "error", "calls"),
    [
        ("https://files.example/a.png", None, CannotFetch, 0),
        (f"{FILE_SCHEME}77001", Undeliverable("no such media"), CannotFetch, 1),
        (f"{FILE_SCHEME}77001", {"file_size": 5}, CannotFetch, 1),
        (f"{FILE_SCHEME}77001", {"url": 5}, CannotFetch, 1),
        (f"{FILE_SCHEME}77001", {"url": "https://lookaside.example/1", "file_size": 6}, FileTooLarge, 1),
        (f"{FILE_SCHEME}77001", Transient("HTTP 502"), Transient, 1),
    ],
)
async def test_a_file_that_whatsapp_does_not_have_does_not_name_or_says_is_too_large_is_not_fetched(
    tmp_path: Path, url: str, answer: Any, error: type[Exception], calls: int
) -> None:
    sender, api = whatsapp(tmp_path, answer)
    with pytest.raises(error) as caught:
        async with sender.file(Media(url), Source("whatsapp", PERSON), FetchLimits(5, 7.0)):
            pass
    assert type(caught.value) is error and len(api.asked) == calls


async def test_a_message_is_marked_as_read_by_the_number_that_it_came_to_and_what_goes_wrong_is_no_matter(
    tmp_path: Path,
) -> None:
    sender, api = whatsapp(tmp_path, {}, Transient("HTTP 502"))
    await sender.read(Address("whatsapp", "", PERSON), "wamid.1")
    await sender.read(Address("whatsapp", "", PERSON), "wamid.2")
    await sender.read(Address("whatsapp", "gone", PERSON), "wamid.3")
    typing = {"type": "text"}
    assert [fields for _, fields in api.asked] == [
        {"status": "read", "message_id": f"wamid.{n}", "typing_indicator": typing} for n in (1, 2)
    ]

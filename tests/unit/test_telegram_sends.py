"""What a bot of Telegram's sends as what: buttons, files, drafts, and what is asked again after a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.blobs.contract import FileTooLarge
from shared.blobs.directory import DirectoryBlobs
from shared.choices import Choice
from shared.errors import Undeliverable
from shared.messages import Media, Source
from shared.multipart import Upload
from shared.platforms.telegram import FACTS, FILE_SCHEME
from shared.platforms.telegram_api import BadRequest, BotApi
from tests.support.pipe import an_inbound
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import a_png, no_files
from workers.delivery.telegram import PHOTO_BYTES, TelegramSender, TelegramSenders
from workers.media.incoming import CannotFetch, FetchLimits
from workers.media.outgoing import Uploads

TAKEN = {"message_id": 9}
CHOICES = (Choice("Approve", "/approve x"), Choice("Deny", "/deny x"))
KEYBOARD = {
    "inline_keyboard": [
        [{"text": "Approve", "callback_data": "/approve x"}],
        [{"text": "Deny", "callback_data": "/deny x"}],
    ]
}
REFUSED = BadRequest("Bad Request: something about the form", None)
MOVED = BadRequest("moved", "-1001")


class Api(Scripted):
    """Telegram's, also for files."""

    async def upload(self, method: str, fields: Any, field: str, file: Upload) -> Any:
        return self._next(method, {**fields, field: file.name})

    async def file_path(self, id: str) -> tuple[str, int | None]:
        found: tuple[str, int | None] = self._next("getFile", id)
        return found

    @asynccontextmanager
    async def download(self, path: str, seconds: float) -> AsyncIterator[Any]:
        self.asked.append((path, seconds))

        async def chunks(most: int | None) -> AsyncIterator[bytes]:
            yield b"hello"

        yield SimpleNamespace(status=200, headers={}, chunks=chunks)


def telegram(*answers: Any) -> tuple[TelegramSender, Api]:
    api = Api(*answers)
    return TelegramSender(cast(BotApi, api), no_files(FACTS)), api


async def test_buttons_stand_one_below_the_other_and_are_left_out_where_the_form_is_refused() -> None:
    sender, api = telegram(REFUSED, TAKEN)
    assert (await sender.send(a_part("telegram", "42", choices=CHOICES))).message_id == "9"
    (_, first), (_, second) = api.asked
    assert first["reply_markup"] == KEYBOARD and "reply_markup" not in second
    sender, api = telegram(TAKEN, TAKEN)
    await sender.edit(a_part("telegram", "42", edits="5", choices=CHOICES))
    await sender.rewrite(a_part("telegram", "42", edits="5"))
    assert [fields.get("reply_markup") for _, fields in api.asked] == [KEYBOARD, None]


@pytest.mark.parametrize(
    ("about", "points"),
    [
        ({"chat_type": "group", "answers": "5"}, True),
        ({"chat_type": "dm", "answers": "5"}, False),
        ({"chat_type": "group", "answers": None}, False),
        ({"chat_type": "group", "answers": "5", "part": 2}, False),
    ],
)
async def test_in_a_group_the_first_part_points_at_what_it_answers(about: dict[str, Any], points: bool) -> None:
    sender, api = telegram(TAKEN)
    number = about.pop("part", 1)
    await sender.send(replace(a_part("telegram", "-1", **about), part=number))
    assert ("reply_parameters" in api.asked[0][1]) == points


@pytest.mark.parametrize("answer", [True, [], {"ok": True}, {"message_id": 9}])
async def test_a_message_whose_id_telegram_does_not_say_is_sent_all_the_same(answer: Any) -> None:
    sender, _ = telegram(answer)
    assert (await sender.send(a_part("telegram", "42"))).message_id == ("9" if answer == TAKEN else "")


@pytest.mark.parametrize("description", ["Bad Request: message can't be edited", "Bad Request: message not found"])
async def test_of_a_message_that_can_no_longer_be_changed_the_rest_is_sent_and_of_one_that_is_gone_all(
    description: str,
) -> None:
    refusal = BadRequest(description, None)
    sender, api = telegram(refusal, refusal, TAKEN)
    part = a_part("telegram", "42", text="It was a dark night", edits="5", shown=len("It was"))
    assert (await sender.edit(part)).message_id == "9"
    rest = "a dark night" if "can't" in description else "It was a dark night"
    assert api.asked[2] == ("sendMessage", {**api.asked[2][1], "text": rest})
    whole, api = telegram(refusal, refusal, TAKEN)
    shown = replace(part, shown=len(part.text))
    assert (await whole.edit(shown)).message_id == ("5" if "can't" in description else "9")


async def test_a_change_in_a_group_that_moved_is_not_tried_as_plain_text_but_said_at_the_new_place() -> None:
    sender, api = telegram(MOVED, MOVED, TAKEN)
    assert (await sender.edit(a_part("telegram", "-1", "group", edits="5"))).message_id == "9"
    assert api.routes == ["editMessageText", "sendMessage", "sendMessage"]
    assert [fields["chat_id"] for _, fields in api.asked] == [-1, -1, -1001]


@pytest.mark.parametrize(
    ("beginning", "size", "method", "field"),
    [
        (b"\x89PNG\r\n\x1a\n", 100, "sendPhoto", "photo"),
        (b"\xff\xd8\xff\xe0", PHOTO_BYTES, "sendPhoto", "photo"),
        (b"\xff\xd8\xff\xe0", PHOTO_BYTES + 1, "sendDocument", "document"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", 100, "sendPhoto", "photo"),
        (b"GIF89a", PHOTO_BYTES + 1, "sendAnimation", "animation"),
        (b"\0\0\0\x20ftypisom", 100, "sendVideo", "video"),
        (b"ID3\x04\0", 100, "sendAudio", "audio"),
        (b"\0\0\0\x20ftypM4A ", 100, "sendAudio", "audio"),
        (b"%PDF-1.7\n", 100, "sendDocument", "document"),
    ],
)
async def test_a_file_is_uploaded_as_what_telegram_shows_or_plays_and_else_as_a_document(
    tmp_path: Path, beginning: bytes, size: int, method: str, field: str
) -> None:
    api, part = await uploading(tmp_path, beginning.ljust(size, b"\0"), TAKEN)
    assert (await api.sender.send(part)).message_id == "9"
    [(called, fields)] = api.scripted.asked
    assert called == method and field in fields and fields["chat_id"] == 42


async def test_what_telegram_refuses_as_a_picture_is_a_document_and_what_it_refuses_as_one_is_refused(
    tmp_path: Path,
) -> None:
    api, part = await uploading(tmp_path, a_png(), REFUSED, TAKEN)
    await api.sender.send(part)
    assert api.scripted.routes == ["sendPhoto", "sendDocument"]
    api, part = await uploading(tmp_path, b"%PDF-1.7\n", REFUSED, TAKEN)
    with pytest.raises(Undeliverable):
        await api.sender.send(part)
    assert api.scripted.routes == ["sendDocument"]
    api, part = await uploading(tmp_path, a_png(), MOVED, TAKEN)
    await api.sender.send(part)
    assert [(method, fields["chat_id"]) for method, fields in api.scripted.asked] == [
        ("sendPhoto", 42),
        ("sendPhoto", -1001),
    ]


async def uploading(directory: Path, content: bytes, *answers: Any) -> tuple[SimpleNamespace, Any]:
    """A sender with this file in its store, and a part with the file."""

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    blobs, scripted = DirectoryBlobs(directory), Api(*answers)
    blob = await blobs.keep(chunks(), 20_000_000)
    sender = TelegramSender(cast(BotApi, scripted), Uploads(blobs, FACTS))
    part = a_part("telegram", "42", text="", media=(Media(str(blob), None, "a"),))
    return SimpleNamespace(sender=sender, scripted=scripted), part


async def test_a_file_that_is_not_kept_any_more_is_a_line_of_text(tmp_path: Path) -> None:
    api = Api(TAKEN)
    sender = TelegramSender(cast(BotApi, api), Uploads(DirectoryBlobs(tmp_path), FACTS))
    gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
    await sender.send(a_part("telegram", "42", text="", media=(gone,)))
    assert api.routes == ["sendMessage"] and api.asked[0][1]["text"] == "[file: gone.txt: no longer kept]"


async def test_a_draft_is_shown_as_html_and_plain_where_telegram_takes_none() -> None:
    sender, api = telegram(REFUSED, True, True)
    said = an_inbound("hello", platform="telegram", chat="42")
    await sender.draft(said, "**a**")
    await sender.draft(said, "**a** b")
    (_, html), (_, text), (_, next_html) = api.asked
    assert html["text"] == "<b>a</b>" and html["parse_mode"] == "HTML" and html["chat_id"] == 42
    assert text["text"] == "**a**" and "parse_mode" not in text
    assert html["draft_id"] == text["draft_id"] == next_html["draft_id"] != 0  # it is changed, not shown beside


@pytest.mark.parametrize("size", [5, None])
async def test_a_file_that_somebody_sent_is_fetched_from_the_path_that_telegram_names(size: int | None) -> None:
    sender, api = telegram(("photos/1.png", size))
    source = Source("telegram", "42")
    async with sender.file(Media(f"{FILE_SCHEME}AgAC"), source, FetchLimits(5, 7.0)) as file:
        assert b"".join([chunk async for chunk in file.chunks]) == b"hello"
    assert api.asked == [("getFile", "AgAC"), ("photos/1.png", 7.0)]


@pytest.mark.parametrize(
    ("url", "answer", "error", "calls"),
    [
        ("https://files.example/a.png", None, CannotFetch, 0),
        (f"{FILE_SCHEME}AgAC", REFUSED, CannotFetch, 1),
        (f"{FILE_SCHEME}AgAC", ("photos/1.png", 6), FileTooLarge, 1),
    ],
)
async def test_a_file_that_is_not_telegrams_is_not_handed_out_or_is_too_large_is_not_fetched(
    url: str, answer: Any, error: type[Exception], calls: int
) -> None:
    sender, api = telegram(answer)
    with pytest.raises(error):
        async with sender.file(Media(url), Source("telegram", "42"), FetchLimits(5, 7.0)):
            pass
    assert len(api.asked) == calls


async def test_drafts_changes_and_files_are_the_bots_that_was_spoken_to() -> None:
    (main, main_api), (other, other_api) = telegram(), telegram(True, TAKEN, TAKEN, ("p", 1))
    senders = TelegramSenders({"": main, "other": other})
    part = a_part("telegram", "42", edits="5")
    part = replace(part, source=replace(part.source, account="other"))
    await senders.draft(an_inbound("hello", platform="telegram", chat="42", account="other"), "text")
    await senders.draft(an_inbound("hello", platform="telegram", chat="42", account="gone"), "text")  # no matter
    await senders.edit(part)
    await senders.rewrite(part)
    async with senders.file(Media(f"{FILE_SCHEME}A"), part.source, FetchLimits(5, 7.0)):
        pass
    assert other_api.routes == ["sendMessageDraft", "editMessageText", "editMessageText", "getFile", "p"]
    assert main_api.asked == []

"""Slack's buttons and files: what is asked for them, and what becomes of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.blobs.contract import FileTooLarge
from shared.blobs.directory import DirectoryBlobs
from shared.choices import Choice
from shared.errors import Denied, Transient
from shared.messages import Media, Source
from shared.multipart import Upload
from shared.platforms.slack import FACTS, FILE_SCHEME
from shared.platforms.slack_api import SlackRefused, WebApi
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import a_png
from workers.delivery.slack import SlackSender
from workers.media.incoming import CannotFetch, FetchLimits
from workers.media.outgoing import Uploads

POSTED = {"channel": "C1", "ts": "18.2"}
CHOICES = (Choice("Approve", "/approve x"), Choice("Deny", "/deny x"))
ADDRESS = "https://files.slack.example/1"


class Api(Scripted):
    """Slack's, also for files. What it downloads is said to be of this type."""

    type = "image/png"

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.uploaded: list[tuple[str, str]] = []

    async def upload(self, file: Upload) -> str:
        self.uploaded.append((file.name, file.type))
        return "F9"

    @asynccontextmanager
    async def download(self, address: str, seconds: float) -> AsyncIterator[Any]:
        self.asked.append((address, seconds))

        async def chunks(most: int | None) -> AsyncIterator[bytes]:
            yield b"hello"

        yield SimpleNamespace(status=200, headers={"content-type": self.type}, chunks=chunks)


def slack(directory: Path, *answers: Any) -> tuple[SlackSender, Api]:
    api = Api(*answers)
    return SlackSender(cast(WebApi, api), Uploads(DirectoryBlobs(directory), FACTS), resend_unseen=False), api


async def test_a_question_has_its_text_and_its_buttons_and_a_change_without_any_takes_them_away(tmp_path: Path) -> None:
    sender, api = slack(tmp_path, POSTED, POSTED, POSTED)
    await sender.send(a_part("slack", "C1", text="**May I?**", choices=CHOICES))
    await sender.rewrite(a_part("slack", "C1", text="**May I?**", edits="C1:18.2", choices=CHOICES[1:]))
    await sender.rewrite(a_part("slack", "C1", text="**May I?**", edits="C1:18.2"))
    asked, fewer, none = (fields["blocks"] for _, fields in api.asked)
    said, actions = asked
    assert said["text"] == {"type": "mrkdwn", "text": "*May I?*", "verbatim": True}
    buttons = [(button["action_id"], button["text"]["text"], button["value"]) for button in actions["elements"]]
    assert buttons == [("choice_0", "Approve", "/approve x"), ("choice_1", "Deny", "/deny x")]
    assert [button["value"] for button in fewer[1]["elements"]] == ["/deny x"] and none == []


async def test_a_question_whose_form_slack_refuses_is_a_plain_text_without_buttons(tmp_path: Path) -> None:
    sender, api = slack(tmp_path, SlackRefused("invalid_blocks"), POSTED)
    await sender.send(a_part("slack", "C1", choices=CHOICES))
    assert "blocks" in api.asked[0][1] and "blocks" not in api.asked[1][1]


@pytest.mark.parametrize("error", ["edit_window_closed", "message_not_found"])
async def test_of_a_message_that_can_no_longer_be_changed_the_rest_is_sent_and_of_one_that_is_gone_all(
    tmp_path: Path, error: str
) -> None:
    text, is_there = "It was a dark night", error == "edit_window_closed"
    sender, api = slack(tmp_path, SlackRefused(error), POSTED, SlackRefused(error), POSTED)
    await sender.edit(a_part("slack", "C1", text=text, edits="C1:18.1", shown=len("It was")))
    assert api.asked[1][1]["text"] == ("a dark night" if is_there else text)
    receipt = await sender.edit(a_part("slack", "C1", text=text, edits="C1:18.1", shown=len(text)))
    assert receipt.message_id == ("C1:18.1" if is_there else "C1:18.2")


async def test_a_file_is_uploaded_and_shown_where_the_part_goes(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield a_png()

    blob = await DirectoryBlobs(tmp_path).keep(chunks(), 100_000)
    sender, api = slack(tmp_path, {"file": {"permalink": "https://slack/F9"}}, POSTED)
    media = (Media(str(blob), "text/plain", "a.png"),)
    await sender.send(a_part("slack", "C1", "channel", text="", thread="17.1", media=media))
    assert api.uploaded == [("a.png", "image/png")] and api.asked[0] == ("files.info", {"file": "F9"})
    posted = api.asked[1][1]
    assert (posted["thread_ts"], posted["text"]) == ("17.1", "<https://slack/F9|a.png>")
    assert posted["metadata"]["event_payload"] == {"key": "out_1"} and "blocks" not in posted


async def test_a_file_that_is_not_kept_any_more_is_a_line_of_text(tmp_path: Path) -> None:
    sender, api = slack(tmp_path, POSTED)
    gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
    await sender.send(a_part("slack", "C1", text="", media=(gone,)))
    assert api.asked[0][1]["text"] == "[file: gone.txt: no longer kept]" and api.uploaded == []


@pytest.mark.parametrize(
    ("about", "address"),
    [
        ({"url_private_download": ADDRESS, "url_private": "https://other", "size": 5}, ADDRESS),
        ({"url_private": ADDRESS}, ADDRESS),
        ({"url_private_download": "", "url_private": ADDRESS, "size": "large"}, ADDRESS),
    ],
)
async def test_a_file_that_somebody_sent_is_fetched_from_the_address_that_slack_names(
    tmp_path: Path, about: dict[str, Any], address: str
) -> None:
    sender, api = slack(tmp_path, {"file": about})
    async with sender.file(Media(f"{FILE_SCHEME}F1"), Source("slack", "C1"), FetchLimits(5, 7.0)) as file:
        assert b"".join([chunk async for chunk in file.chunks]) == b"hello"
    assert api.asked == [("files.info", {"file": "F1"}), (address, 7.0)]


@pytest.mark.parametrize(
    ("url", "answer", "error", "calls"),
    [
        ("https://files.example/a.png", None, CannotFetch, 0),
        (f"{FILE_SCHEME}F1", SlackRefused("file_deleted"), CannotFetch, 1),
        (f"{FILE_SCHEME}F1", {"file": {}}, CannotFetch, 1),
        (f"{FILE_SCHEME}F1", {"file": {"url_private": 5}}, CannotFetch, 1),
        (f"{FILE_SCHEME}F1", {"file": {"url_private": ADDRESS, "size": 6}}, FileTooLarge, 1),
        (f"{FILE_SCHEME}F1", Transient("HTTP 502"), Transient, 1),
    ],
)
async def test_a_file_that_slack_does_not_have_does_not_name_or_says_is_too_large_is_not_fetched(
    tmp_path: Path, url: str, answer: Any, error: type[Exception], calls: int
) -> None:
    sender, api = slack(tmp_path, answer)
    with pytest.raises(error) as caught:
        async with sender.file(Media(url), Source("slack", "C1"), FetchLimits(5, 7.0)):
            pass
    assert type(caught.value) is error and len(api.asked) == calls


@pytest.mark.parametrize(("kind", "is_page"), [("image/png", True), (None, True), ("text/html", False)])
async def test_a_page_in_the_place_of_a_file_says_that_the_token_lacks_a_right(
    tmp_path: Path, kind: str | None, is_page: bool
) -> None:
    sender, api = slack(tmp_path, {"file": {"url_private": ADDRESS, "mimetype": kind}})
    api.type = "text/html"
    opening = sender.file(Media(f"{FILE_SCHEME}F1"), Source("slack", "C1"), FetchLimits(5, 7.0))
    if is_page:
        with pytest.raises(Denied, match="files:read"):
            async with opening:
                pass
    else:
        async with opening as file:
            assert file.type == "text/html"

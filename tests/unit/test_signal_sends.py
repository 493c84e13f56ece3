"""Signal's files and signs: bytes go to the daemon and come from it whole, a bounded number of them at a time."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from shared.address import Address
from shared.blobs.directory import DirectoryBlobs
from shared.errors import BotRefused, Transient, Undeliverable
from shared.messages import Media, Source
from shared.platforms.signal import FACTS, FILE_SCHEME
from shared.platforms.signal_api import Daemon
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import a_png
from workers.delivery.signal import FILE_BYTES, MEMORY_BYTES, SignalSender
from workers.media.incoming import CannotFetch, FetchLimits
from workers.media.outgoing import Uploads

SENT = {"timestamp": 17, "results": [{"type": "SUCCESS"}]}
HELLO = base64.b64encode(b"hello").decode()


class Api(Scripted):
    """signal-cli's daemon. It notes what else it was told of a call."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.about: list[dict[str, Any]] = []

    async def call(self, what: Any, fields: Any = None, *_: Any, **about: Any) -> Any:
        self.about.append(about)
        return await super().call(what, fields)


def signal(directory: Path, *answers: Any) -> tuple[SignalSender, Api]:
    daemon = Api(*answers)
    return SignalSender(cast(Daemon, daemon), Uploads(DirectoryBlobs(directory), FACTS)), daemon


async def test_a_file_goes_to_the_daemon_with_its_name_and_type_and_the_daemon_hears_of_earlier_waits(
    tmp_path: Path,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield a_png()

    blob = await DirectoryBlobs(tmp_path).keep(chunks(), 100_000)
    sender, daemon = signal(tmp_path, SENT)
    media = (Media(str(blob), "text/plain", "Grüße 1.png"),)
    await sender.send(a_part("signal", "group:g1", "group", text="", media=media, answers="16:+1777", waits=3))
    [(method, fields)] = daemon.asked
    assert (method, fields["groupId"], fields["message"], fields["quoteTimestamp"]) == ("send", "g1", "", 16)
    [attached] = fields["attachments"]
    assert attached.startswith("data:image/png;filename=Gr%C3%BC%C3%9Fe%201.png;base64,")
    assert base64.b64decode(attached.rpartition(",")[2]) == a_png() and daemon.about == [{"waits": 3}]


async def test_a_file_that_is_not_kept_any_more_is_a_line_of_text(tmp_path: Path) -> None:
    sender, daemon = signal(tmp_path, SENT)
    gone = Media(f"blob:{'0' * 64}/5", "text/plain", "gone.txt")
    await sender.send(a_part("signal", "+1555", text="", media=(gone,)))
    assert daemon.asked[0][1] == {"recipient": ["+1555"], "message": "[file: gone.txt: no longer kept]"}


async def test_a_plain_text_has_no_styles_and_a_file_elsewhere_is_its_address(tmp_path: Path) -> None:
    sender, daemon = signal(tmp_path, SENT, SENT)
    await sender.send(a_part("signal", "+1555", text="hello"))
    await sender.send(a_part("signal", "+1555", text="", media=(Media("https://a/b"),)))
    assert [fields["message"] for _, fields in daemon.asked] == ["hello", "https://a/b"]
    assert all("textStyle" not in fields and "attachments" not in fields for _, fields in daemon.asked)


@pytest.mark.parametrize(("chat", "where"), [("+1555", {"recipient": "+1555"}), ("group:g1", {"groupId": "g1"})])
async def test_a_file_that_somebody_sent_is_asked_for_in_its_chat(
    tmp_path: Path, chat: str, where: dict[str, str]
) -> None:
    sender, daemon = signal(tmp_path, {"data": HELLO})
    async with sender.file(Media(f"{FILE_SCHEME}abc.png"), Source("signal", chat), FetchLimits(5, 7.0)) as file:
        assert (file.size, b"".join([chunk async for chunk in file.chunks])) == (5, b"hello")
    assert daemon.asked == [("getAttachment", {"id": "abc.png", **where})] and daemon.about == [{"seconds": 7.0}]


@pytest.mark.parametrize(
    ("url", "answer", "error", "calls"),
    [
        ("https://files.example/a.png", None, CannotFetch, 0),
        (f"{FILE_SCHEME}abc", Undeliverable("no such attachment"), CannotFetch, 1),
        (f"{FILE_SCHEME}abc", {"data": "no base64!"}, CannotFetch, 1),
        (f"{FILE_SCHEME}abc", Transient("HTTP 502"), Transient, 1),
    ],
)
async def test_a_file_that_the_daemon_does_not_have_is_not_fetched(
    tmp_path: Path, url: str, answer: Any, error: type[Exception], calls: int
) -> None:
    sender, daemon = signal(tmp_path, answer)
    with pytest.raises(error) as caught:
        async with sender.file(Media(url), Source("signal", "+1555"), FetchLimits(5, 7.0)):
            pass
    assert type(caught.value) is error and len(daemon.asked) == calls


async def test_as_many_files_are_in_memory_at_once_as_there_is_room_for(tmp_path: Path) -> None:
    most = MEMORY_BYTES // FILE_BYTES
    sender, daemon = signal(tmp_path, *[{"data": HELLO}] * 5)
    source, held, go_on = Source("signal", "+1555"), list[int](), asyncio.Event()

    async def hold(n: int) -> None:
        async with sender.file(Media(f"{FILE_SCHEME}{n}"), source, FetchLimits(5, 7.0)):
            held.append(n)
            await go_on.wait()

    tasks = [asyncio.create_task(hold(n)) for n in range(5)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert most == 2 and len(held) == len(daemon.asked) == most
    go_on.set()
    await asyncio.gather(*tasks)
    assert len(held) == 5


@pytest.mark.parametrize("error", [Transient("HTTP 502"), BotRefused("not registered")])
async def test_the_sign_that_somebody_writes_fails_only_where_the_account_is_refused(
    tmp_path: Path, error: Exception
) -> None:
    sender, daemon = signal(tmp_path, {}, error)
    await sender.typing(Address("signal", "", "+1555"))
    if isinstance(error, BotRefused):
        with pytest.raises(BotRefused):
            await sender.typing(Address("signal", "", "+1555"))
    else:
        await sender.typing(Address("signal", "", "+1555"))
    assert daemon.asked == [("sendTyping", {"recipient": ["+1555"]})] * 2

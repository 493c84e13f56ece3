"""Where the bounds are that a platform or a stranger meets: what lies on one is taken, and what lies beyond it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic import SecretStr

from producers.feishu.frames import DATA, FeishuFrame, decode, encode
from producers.feishu.parts import MOST_BYTES, Parts
from shared.errors import Malformed
from shared.messages import Media
from shared.multipart import Upload
from shared.platforms.api import ApiSettings
from shared.platforms.settings import PlatformSettings
from shared.platforms.telegram_api import BotApi
from shared.platforms.webhook import WebhookSettings
from shared.platforms.whatsapp import WhatsAppSettings
from shared.platforms.whatsapp_api import CloudApi
from tests.support.scripted_api import Scripted, a_part
from workers.delivery.telegram import TelegramSender
from workers.delivery.whatsapp import WhatsAppSender
from workers.media.outgoing import Uploads

# -- files: how large they may be as what they are


class Sized:
    """Every reply's file is one of this type and size."""

    def __init__(self, type: str, size: int) -> None:
        self._upload = Upload("a", type, size, self._none)

    async def of(self, media: Media) -> Upload:
        return self._upload

    async def _none(self) -> AsyncIterator[bytes]:
        yield b""


class Uploading(Scripted):
    """Takes files, and remembers as what."""

    async def upload(self, what: str, *about: Any) -> Any:
        return self._next(what, about)


def a_file(platform: str) -> Any:
    return a_part(platform, "15550001111", text="", media=(Media("blob:1", None),))


@pytest.mark.parametrize(
    ("type", "most"),
    [("image/png", 5_000_000), ("video/mp4", 16_000_000), ("audio/ogg", 16_000_000), ("image/webp", 100_000)],
)
async def test_a_file_that_is_too_large_for_what_it_is_goes_to_whatsapp_as_a_document(type: str, most: int) -> None:
    for size, is_document in ((most, False), (most + 1, True)):
        api = Uploading("file-1", {"messages": [{"id": "wamid.1"}]})
        uploads = cast(Uploads, Sized(type, size))
        await WhatsAppSender(cast(CloudApi, api), {"": "100"}, uploads).send(a_file("whatsapp"))
        assert ("document" in api.asked[-1][1]) is is_document


async def test_a_picture_that_is_too_large_for_one_goes_to_telegram_as_a_document() -> None:
    for size, method in ((10_000_000, "sendPhoto"), (10_000_001, "sendDocument")):
        api = Uploading({"message_id": 1})
        await TelegramSender(cast(BotApi, api), cast(Uploads, Sized("image/jpeg", size))).send(a_file("telegram"))
        assert api.routes == [method]


# -- Feishu's connection


def framed(headers: int) -> bytes:
    return encode(FeishuFrame(1, DATA, ((b"k", b"v"),) * headers, b"{}"))


def a_part_of(count: int, place: int, payload: bytes = b"") -> FeishuFrame:
    headers = ((b"message_id", b"m"), (b"sum", b"%d" % count), (b"seq", b"%d" % place))
    return FeishuFrame(1, DATA, headers, payload)


def test_a_frame_of_feishu_has_so_many_headers_and_no_more() -> None:
    assert len(decode(framed(100)).headers) == 100
    with pytest.raises(Malformed):
        decode(framed(101))


def test_a_number_in_a_frame_has_at_most_ten_bytes() -> None:
    known = decode(b"\x08" + b"\x81" * 9 + b"\x01" + framed(1))
    assert known.payload == b"{}"
    with pytest.raises(Malformed):
        decode(b"\x08" + b"\x81" * 10 + b"\x01" + framed(1))


def test_feishu_may_send_so_many_parts_and_so_many_bytes_and_no_more() -> None:
    assert Parts().whole(a_part_of(1000, 0)) is None
    with pytest.raises(Malformed):
        Parts().whole(a_part_of(1001, 0))
    parts, half = Parts(), bytes(MOST_BYTES // 2)
    assert parts.whole(a_part_of(3, 0, half)) is None
    assert parts.whole(a_part_of(3, 1, half)) is None
    with pytest.raises(Malformed):
        parts.whole(a_part_of(3, 2, b"x"))
    assert MOST_BYTES == 16 * 2**20


# -- secrets: how short is too short


def secret(length: int) -> SecretStr:
    return SecretStr(("a1b2c3d4" * 9)[:length])


def whatsapp(length: int) -> WhatsAppSettings:
    return WhatsAppSettings(
        access_token=secret(40), app_secret=(secret(32),), verify_token=secret(length), phone_number_id="106"
    )


@pytest.mark.parametrize("settings", [lambda n: ApiSettings(keys=(secret(n),)), whatsapp], ids=["api", "whatsapp"])
def test_the_doctor_warns_of_a_secret_of_fifteen_characters_and_not_of_sixteen(settings: Any) -> None:
    def warned(block: PlatformSettings) -> bool:
        return any("can be guessed" in str(finding) for finding in block.findings())

    assert warned(settings(15)) and not warned(settings(16))


def test_a_secret_by_which_others_sign_has_sixteen_characters() -> None:
    assert WebhookSettings(scheme="github", secrets=(secret(16),)).on
    with pytest.raises(ValueError, match="16 characters"):
        WebhookSettings(scheme="github", secrets=(secret(15),))

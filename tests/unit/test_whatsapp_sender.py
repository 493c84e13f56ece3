"""What WhatsApp is asked for a part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from shared.address import Address
from shared.errors import Undeliverable
from shared.messages import Media
from shared.platforms.whatsapp import FACTS, GROUP
from shared.platforms.whatsapp_api import CloudApi
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import no_files
from workers.delivery.whatsapp import WhatsAppSender


def whatsapp(*answers: Any) -> tuple[WhatsAppSender, Scripted]:
    api = Scripted(*(answers or ({"messages": [{"id": "wamid.1"}]},) * 9))
    return WhatsAppSender(cast(CloudApi, api), {"": "100"}, no_files(FACTS)), api


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        ("15550001111", {"recipient_type": "individual", "to": "15550001111"}),
        ("1234", {"recipient_type": "individual", "recipient": "1234"}),
        ("US.abc", {"recipient_type": "individual", "recipient": "US.abc"}),
    ],
)
async def test_whatsapp_is_told_whom(chat: str, expected: dict[str, str]) -> None:
    sender, api = whatsapp()
    assert (await sender.send(a_part("whatsapp", chat))).message_id == "wamid.1"
    [(number, fields)] = api.asked
    assert number == "100" and expected.items() <= fields.items()
    assert fields["text"] == {"body": "hello", "preview_url": False} and "context" not in fields
    assert fields["biz_opaque_callback_data"]


async def test_in_a_group_of_whatsapp_the_first_part_points_at_what_it_answers() -> None:
    sender, api = whatsapp()
    part = a_part("whatsapp", f"{GROUP}g1", "group", answers="wamid.0")
    await sender.send(part)
    await sender.send(replace(part, part=2))
    assert api.asked[0][1]["context"] == {"message_id": "wamid.0"} and "context" not in api.asked[1][1]
    assert (api.asked[0][1]["recipient_type"], api.asked[0][1]["to"]) == ("group", "g1")


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (Media("https://a/b.png", "IMAGE/PNG; q=1", "b"), {"type": "image", "image": {"link": "https://a/b.png"}}),
        (Media("https://a/b", None, "b"), {"type": "document", "document": {"link": "https://a/b", "filename": "b"}}),
        (Media("https://a/b", "application/pdf"), {"type": "document", "document": {"link": "https://a/b"}}),
        (Media("https://a/b", "image/webp"), {"type": "sticker", "sticker": {"link": "https://a/b"}}),
    ],
)
async def test_whatsapp_gets_a_file_as_what_it_is(media: Media, expected: dict[str, Any]) -> None:
    sender, api = whatsapp()
    await sender.send(a_part("whatsapp", "15550001111", text="", media=(media,)))
    assert expected.items() <= api.asked[0][1].items()


async def test_a_number_of_whatsapp_that_is_gone_sends_nothing() -> None:
    sender, api = whatsapp()
    part = a_part("whatsapp", "15550001111")
    with pytest.raises(Undeliverable, match="no number gone"):
        await sender.send(replace(part, source=replace(part.source, account="gone")))
    await sender.read(Address("whatsapp", "gone", "1"), "wamid.0")
    assert api.asked == []
    await sender.read(Address("whatsapp", "", "1"), "wamid.0")
    assert api.asked[0][1] == {"status": "read", "message_id": "wamid.0", "typing_indicator": {"type": "text"}}

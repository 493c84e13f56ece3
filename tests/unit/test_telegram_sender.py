"""What Telegram is asked for a part, and what follows when it refuses that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from shared.address import Address
from shared.errors import Ambiguous, BotRefused, Transient, Undeliverable
from shared.messages import Inbound, Media, Source
from shared.platforms.telegram import DIRECT_TOPIC, FACTS, FILE_SCHEME
from shared.platforms.telegram_api import BadRequest, BotApi, NothingThere
from tests.support.scripted_api import Scripted, a_part
from tests.support.uploads import no_files
from workers.delivery.telegram import TelegramSender, TelegramSenders


def telegram(*answers: Any) -> tuple[TelegramSender, Scripted]:
    api = Scripted(*answers)
    return TelegramSender(cast(BotApi, api), no_files(FACTS)), api


TAKEN = {"message_id": 9}


async def test_telegram_gets_html_and_plain_text_where_it_takes_none() -> None:
    sender, api = telegram(TAKEN)
    assert (await sender.send(a_part("telegram", "42", text="**a** <b>"))).message_id == "9"
    [(method, fields)] = api.asked
    assert method == "sendMessage" and (fields["chat_id"], fields["parse_mode"]) == (42, "HTML")
    assert fields["text"] == "<b>a</b> &lt;b&gt;" and fields["link_preview_options"] == {"is_disabled": True}
    assert "reply_parameters" not in fields
    sender, api = telegram(BadRequest("can't parse entities", None), TAKEN)
    await sender.send(a_part("telegram", "42", text="**a** <b>"))
    assert api.asked[1][1]["text"] == "**a** <b>" and "parse_mode" not in api.asked[1][1]


async def test_a_group_of_telegram_that_moved_is_answered_at_its_new_place_from_then_on() -> None:
    sender, api = telegram(BadRequest("moved", "-1001"), TAKEN, TAKEN)
    part = a_part("telegram", "-1", "group", answers="5")
    await sender.send(part)
    await sender.send(part)
    assert [fields["chat_id"] for _, fields in api.asked] == [-1, -1001, -1001]
    assert api.asked[0][1]["reply_parameters"] == {"message_id": 5, "allow_sending_without_reply": True}
    assert all("reply_parameters" not in fields for _, fields in api.asked[1:])


async def test_a_refusal_of_telegram_is_final_when_plain_text_is_refused_too() -> None:
    sender, api = telegram(BadRequest("chat not found", None), BadRequest("chat not found", None))
    with pytest.raises(Undeliverable):
        await sender.send(a_part("telegram", "42"))
    assert len(api.asked) == 2


async def test_telegram_is_told_the_topic_and_which_file_it_gets() -> None:
    sender, api = telegram(TAKEN, TAKEN, TAKEN, TAKEN, TAKEN)
    await sender.send(a_part("telegram", "-1", "group", thread="8"))
    await sender.send(a_part("telegram", "-1", "group", thread=f"{DIRECT_TOPIC}8"))
    assert api.asked[0][1]["message_thread_id"] == 8 and api.asked[1][1]["direct_messages_topic_id"] == 8
    for kind in ("image/png", "application/pdf", None):
        await sender.send(a_part("telegram", "@chan", text="", media=(Media(f"{FILE_SCHEME}F1", kind),)))
    assert [(what, fields.get("photo") or fields.get("document")) for what, fields in api.asked[2:]] == [
        ("sendPhoto", "F1"),
        ("sendDocument", "F1"),
        ("sendDocument", "F1"),
    ]
    assert api.asked[2][1]["chat_id"] == "@chan"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "/etc/passwd", "BQACAgQ", "data:image/png;base64,AA==", "FILE:///a"]
)
async def test_telegram_is_pointed_at_web_addresses_and_its_own_files_only(url: str) -> None:
    sender, api = telegram(TAKEN)
    with pytest.raises(Undeliverable, match="cannot be pointed at"):
        await sender.send(a_part("telegram", "42", text="", media=(Media(url, "application/pdf"),)))
    assert api.asked == []


async def test_a_message_on_telegram_is_changed_or_said_anew() -> None:
    sender, api = telegram(TAKEN)
    await sender.edit(a_part("telegram", "42", edits="5"))
    assert api.asked[0][0] == "editMessageText"
    assert (api.asked[0][1]["chat_id"], api.asked[0][1]["message_id"]) == (42, 5)
    sender, api = telegram(BadRequest("Bad Request: message is not modified: same", None))
    assert (await sender.edit(a_part("telegram", "42", edits="5"))).message_id == "5"
    assert len(api.asked) == 1
    gone = BadRequest("message to edit not found", None)
    sender, api = telegram(gone, gone, TAKEN)
    assert (await sender.edit(a_part("telegram", "42", edits="5"))).message_id == "9"
    assert api.routes == ["editMessageText", "editMessageText", "sendMessage"]
    sender, _ = telegram(Ambiguous("x"))
    with pytest.raises(Transient) as caught:
        await sender.edit(a_part("telegram", "42", edits="5"))
    assert type(caught.value) is Transient


async def test_a_bot_api_server_that_knows_no_drafts_does_not_stop_the_bot() -> None:
    said = Inbound("in_1", "1", Source("telegram", "42", user="42"), "hi")
    sender, api = telegram(NothingThere("404"))
    with pytest.raises(Undeliverable):
        await sender.draft(said, "hello")
    assert api.routes == ["sendMessageDraft"]
    sender, api = telegram(BotRefused("401"))
    with pytest.raises(BotRefused):
        await sender.draft(said, "hello")


async def test_each_bot_of_telegram_answers_where_it_was_spoken_to() -> None:
    (main, main_api), (other, other_api) = telegram(TAKEN), telegram(TAKEN)
    senders = TelegramSenders({"": main, "other": other})
    part = a_part("telegram", "42")
    await senders.send(replace(part, source=replace(part.source, account="other")))
    assert (len(main_api.asked), len(other_api.asked)) == (0, 1)
    with pytest.raises(Undeliverable, match="no bot gone"):
        await senders.send(replace(part, source=replace(part.source, account="gone")))
    await senders.typing(Address("telegram", "gone", "42"))
    await senders.typing(Address("telegram", "", "42"))
    assert main_api.routes == ["sendChatAction"] and main_api.asked[0][1] == {"chat_id": 42, "action": "typing"}

"""Where a part goes on Feishu, and under which uuid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import SecretStr

from shared.errors import Undeliverable
from shared.messages import Part, Source
from shared.platforms.feishu import FACTS, FeishuSettings
from shared.platforms.feishu_api import open_api
from tests.support.feishu import APP_ID, APP_SECRET, FakeFeishu, Refused, open_feishu
from tests.support.uploads import no_files
from workers.delivery.feishu import FeishuSender

DIRECT = Source("feishu", "oc_ann", user="ou_ann")
UPLOADS = no_files(FACTS)
TOPIC = Source("feishu", "oc_group", "group", user="ou_ann", thread="omt_1")


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with open_feishu() as opened:
        yield opened


@pytest.fixture
async def sender(fake: FakeFeishu) -> AsyncIterator[FeishuSender]:
    settings = FeishuSettings(app_id=APP_ID, app_secret=SecretStr(APP_SECRET), api_url=fake.url)
    async with open_api(settings) as api:
        yield FeishuSender(api, UPLOADS, resend_unrecognised=False)


def a_part(source: Source = DIRECT, key: str = "out_1", text: str = "hello") -> Part:
    return Part(1, key, "agent:main:feishu:dm:oc_ann", source, ("om_1",), 1, 1, text)


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("oc_1", "chat_id"),
        ("ou_1", "open_id"),
        ("on_1", "union_id"),
        ("ann@x.org", "email"),
        ("e5f2", "user_id"),
    ],
)
async def test_an_id_shows_what_it_is_the_id_of(fake: FakeFeishu, sender: FeishuSender, id: str, kind: str) -> None:
    await sender.send(a_part(replace(DIRECT, chat=id)))
    [call] = fake.sends()
    assert (call.query["receive_id_type"], call.fields["receive_id"]) == (kind, id)


async def test_a_key_that_is_too_long_for_a_uuid_still_tells_parts_apart(
    fake: FakeFeishu, sender: FeishuSender
) -> None:
    keys = [f"{'x' * 50}{n}" for n in "ab"]
    for key in (*keys, *keys):
        await sender.send(a_part(key=key))
    uuids = [call.fields["uuid"] for call in fake.sends()]
    assert len(set(uuids)) == 2 and uuids[:2] == uuids[2:] and len(fake.shown) == 2


async def test_a_send_that_feishu_would_not_recognise_any_more_is_the_policys(
    fake: FakeFeishu, sender: FeishuSender
) -> None:
    part = replace(a_part(), attempts=1, sending=True)
    await sender.send(replace(part, sending_for=timedelta(minutes=50)))
    late = replace(part, sending_for=timedelta(hours=2))
    with pytest.raises(Undeliverable):
        await sender.send(late)
    assert len(fake.sends()) == 1
    await FeishuSender(sender._api, UPLOADS, resend_unrecognised=True).send(late)
    assert len(fake.sends()) == 2


async def test_a_message_of_a_thread_is_looked_for_once(fake: FakeFeishu, sender: FeishuSender) -> None:
    fake.messages["om_topic"] = {"chat": "oc_group", "thread": "omt_1"}
    for key in ("out_1", "out_2"):
        await sender.send(a_part(TOPIC, key))
    assert [shown["thread"] for shown in fake.shown] == ["omt_1", "omt_1"]
    assert [call.query["container_id"] for call in fake.calls if call.query.get("container_id")] == ["omt_1"]


async def test_a_thread_of_which_nothing_is_left_is_answered_in_its_chat(
    fake: FakeFeishu, sender: FeishuSender
) -> None:
    await sender.send(a_part(TOPIC))
    assert [(shown["chat"], shown["thread"]) for shown in fake.shown] == [("oc_group", None)]


async def test_a_thread_is_answered_by_another_message_of_it_when_one_was_withdrawn(
    fake: FakeFeishu, sender: FeishuSender
) -> None:
    fake.messages["om_topic"] = {"chat": "oc_group", "thread": "omt_1"}
    await sender.send(a_part(TOPIC, "out_1"))
    fake.messages = {"om_other": {"chat": "oc_group", "thread": "omt_1"}}
    await sender.send(a_part(TOPIC, "out_2"))
    await sender.send(replace(a_part(TOPIC, "out_3"), answers="om_gone"))
    assert [shown["answers"] for shown in fake.shown] == ["om_topic", "om_other", "om_other"]


@pytest.mark.parametrize("code", [99991672, 230027])
async def test_a_thread_that_we_may_not_read_is_answered_in_its_chat(
    fake: FakeFeishu, sender: FeishuSender, code: int
) -> None:
    fake.unreadable = code
    await sender.send(a_part(TOPIC))
    assert [(shown["chat"], shown["thread"]) for shown in fake.shown] == [("oc_group", None)]


WHEREVER = [230002, 230006, 230013, 230017, 230018, 230019, 230022, 230025, 230027, 230045, 230050, 232009]


@pytest.mark.parametrize("code", [*WHEREVER, 230011, 230071])
async def test_a_reply_that_feishu_refuses_is_sent_without_pointing_unless_it_would_be_refused_there_too(
    fake: FakeFeishu, sender: FeishuSender, code: int
) -> None:
    fake.trouble.append(Refused(code))
    part = replace(a_part(replace(DIRECT, chat="oc_group", chat_type="group")), answers="om_1")
    if code in WHEREVER:
        with pytest.raises(Undeliverable):
            await sender.send(part)
    else:
        await sender.send(part)
    assert len(fake.sends()) == (1 if code in WHEREVER else 2)
    assert len(fake.shown) == (0 if code in WHEREVER else 1)

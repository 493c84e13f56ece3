"""POST /v1/deliveries: says something in the chats that API__DELIVER_TO lists, once, and in no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings
from shared.settings import QuotaSettings, Settings
from tests.store.books import ask
from tests.support.door import API_KEY, Door, open_door
from tests.support.pipe import Rig, key_of

MakeSettings = Callable[..., Settings]


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings(api=_block("webhook:c1", "webhook", "api:*"))


def _block(*targets: str) -> ApiSettings:
    return ApiSettings(keys=(SecretStr(API_KEY), SecretStr("another-key")), deliver_to=targets)


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


async def post(door: Door, body: Any, key: str | None = API_KEY) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = {"authorization": f"Bearer {key}"} if key is not None else {}
    response = await door.request("POST", "/v1/deliveries", headers, content)
    return response.status_code, response.json()


async def test_a_delivery_is_a_row_of_its_chat_and_leaves_through_the_outbox(door: Door) -> None:
    status, answer = await post(door, {"to": "webhook:c1", "text": "the build is red"})
    [told] = answer["deliveries"]
    assert (status, told["target"], told["outcome"], told["state"]) == (202, "webhook:c1", "accepted", "pending")
    rig = Rig(door.pipe)
    await rig.run_turns(key_of())
    assert await rig.transcript() == ["the build is red"]
    [row] = await ask(door.pipe.store, "SELECT destination, state FROM outbox")
    assert tuple(row.values()) == ("to:webhook:c1", "pending")


async def test_a_key_over_its_quota_is_told_to_wait_and_nothing_is_sent(make_settings: MakeSettings) -> None:
    settings = make_settings(api=_block("webhook:c1", "api:*"), quota=QuotaSettings(sender_messages_per_minute=2))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        once = {"to": "webhook:c1", "text": "one", "id": "evt_1"}
        assert [(await post(door, once))[0] for _ in range(3)] == [202, 200, 200]  # a repetition counts once
        assert (await post(door, {"to": ["webhook:c1", "api:c2"], "text": "two"}))[0] == 429
        assert len(await ask(pipe.store, "SELECT id FROM inbox")) == 1
        assert (await post(door, {"to": "webhook:c1", "text": "other"}, key="another-key"))[0] == 202


async def test_a_repeated_id_sends_once_and_the_ids_of_two_keys_are_apart(door: Door) -> None:
    body = {"to": ["webhook:c1"], "text": "once", "id": "evt_1"}
    first, second = await post(door, body), await post(door, body)
    assert (first[0], second[0], second[1]["deliveries"][0]["outcome"]) == (202, 200, "known")
    assert (await post(door, body, key="another-key"))[0] == 202
    assert len(await ask(door.pipe.store, "SELECT id FROM inbox")) == 2


async def test_a_target_that_is_not_listed_is_refused_and_the_others_are_told(door: Door) -> None:
    to = ["webhook:c2", "webhook:c1", "api:x", "local", "origin", "webhook"]
    status, answer = await post(door, {"to": to, "text": "hello"})
    assert status == 202
    assert {told["target"]: told["outcome"] for told in answer["deliveries"]} == {
        "webhook:c2": "refused",
        "webhook:c1": "accepted",
        "api:x": "accepted",
        "local": "refused",
        "origin": "refused",
        "webhook": "refused",  # it is listed, and has no home channel
    }
    assert (await post(door, {"to": "webhook:c2", "text": "hello"}))[0] == 422


async def test_without_a_list_nothing_can_be_sent(make_settings: MakeSettings) -> None:
    async with open_pipeline(make_settings()) as pipe, open_door(pipe) as door:
        for target in ("webhook:c1", "api:c1", "local"):
            assert (await post(door, {"to": target, "text": "hello"}))[0] == 422
        assert await ask(pipe.store, "SELECT id FROM inbox") == []


@pytest.mark.parametrize("listed", ["*", "webhook:*"])
async def test_a_star_lists_chats_and_no_file(make_settings: MakeSettings, listed: str) -> None:
    async with open_pipeline(make_settings(api=_block(listed))) as pipe, open_door(pipe) as door:
        _, answer = await post(door, {"to": ["webhook:c9", "local"], "text": "hello"})
        assert [told["outcome"] for told in answer["deliveries"]] == ["accepted", "refused"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        {},
        {"to": "webhook:c1"},
        {"to": "webhook:c1", "text": ""},
        {"to": "webhook:c1", "text": 5},
        {"to": "webhook:c1", "text": "x" * 100_001},
        {"to": [], "text": "x"},
        {"to": ["webhook:c1", 5], "text": "x"},
        {"to": "nowhere:1", "text": "x"},
        {"to": "webhook:c\0", "text": "x"},
        {"to": [f"webhook:c{n}" for n in range(21)], "text": "x"},
        {"to": "webhook:c1", "text": "x", "id": ""},
        {"to": "webhook:c1", "text": "x", "id": "k" * 257},
        {"to": "webhook:c1", "text": "x", "from": "me"},
    ],
)
async def test_what_cannot_be_understood_is_refused_whole(door: Door, body: Any) -> None:
    status, answer = await post(door, body)
    assert status == 422 and answer.keys() == {"error"}
    assert await door.nothing_stored()


async def test_nobody_sends_without_a_key(door: Door) -> None:
    for key in (None, "", "wrong"):
        assert (await post(door, {"to": "webhook:c1", "text": "x"}, key=key))[0] == 401
    assert await door.nothing_stored()

"""API keys with names: each has conversations, scopes and quotas of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from shared.pipeline import open_pipeline
from shared.platforms.api import ApiSettings, NamedKey
from shared.settings import QuotaSettings, Settings
from tests.support.door import Door, a_body, open_door
from tests.support.pipe import Rig

MakeSettings = Callable[..., Settings]
SHOP, SHOP_NEW, OTHER = "shop-key-0123456789", "shop-key-9876543210", "other-key-0123456789"
SHOP_CHAT, OTHER_CHAT = "agent:main:api@shop:dm:c1", "agent:main:api@other:dm:c1"


def named(**changes: Any) -> ApiSettings:
    shop = NamedKey(secrets=(SecretStr(SHOP), SecretStr(SHOP_NEW)), **changes)
    return ApiSettings(
        keys=(SecretStr("test-key"),), named_keys={"shop": shop, "other": NamedKey(secrets=(SecretStr(OTHER),))}
    )


@asynccontextmanager
async def opened(make_settings: MakeSettings, **changes: Any) -> AsyncIterator[Door]:
    async with open_pipeline(make_settings(**{"api": named(), **changes})) as pipe, open_door(pipe) as door:
        yield door


async def post(door: Door, key: str, **fields: Any) -> httpx.Response:
    return await door.request("POST", "/v1/messages", bearer(key), a_body(**fields))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_two_keys_with_the_same_chat_and_the_same_event_id_do_not_meet(make_settings: MakeSettings) -> None:
    async with opened(make_settings) as door:
        rig = Rig(door.pipe)
        keys = {
            key: (await post(door, key, id="evt_1", text=key)).json()["session_key"]
            for key in (SHOP, OTHER, "test-key")
        }
        assert keys == {SHOP: SHOP_CHAT, OTHER: OTHER_CHAT, "test-key": "agent:main:api:dm:c1"}
        for secret, key in keys.items():
            await rig.run_turns(key)
            assert await rig.transcript(key) == [secret, f"echo: {secret}"]


async def test_a_key_sees_its_own_messages_and_conversations_and_those_of_no_other_name(
    make_settings: MakeSettings,
) -> None:
    async with opened(make_settings) as door:
        id = (await post(door, SHOP)).json()["id"]
        await Rig(door.pipe).run_turns(SHOP_CHAT)
        unknown = await door.request("GET", f"/v1/messages/in_{'0' * 30}", bearer(OTHER))
        for key in (OTHER, "test-key"):
            seen = await door.request("GET", f"/v1/messages/{id}", bearer(key))
            assert (seen.status_code, seen.content) == (404, unknown.content)
            followed = await door.request("GET", f"/v1/sessions/{SHOP_CHAT}/events", bearer(key))
            assert (followed.status_code, followed.json()) == (404, {"error": "no such session"})
        for key in (SHOP, SHOP_NEW):
            assert (await door.request("GET", f"/v1/messages/{id}", bearer(key))).json()["state"] == "answered"


async def test_while_a_named_key_is_rotated_both_secrets_are_one_key(make_settings: MakeSettings) -> None:
    async with opened(make_settings, api=named(messages_per_minute=2)) as door:
        answers = [await post(door, key, id="evt_1") for key in (SHOP, SHOP_NEW)]
        assert [answer.status_code for answer in answers] == [202, 200]  # the same event
        assert (await post(door, SHOP_NEW, id="evt_2")).status_code == 202
        assert (await post(door, SHOP, id="evt_3")).status_code == 429  # the same quota


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (("messages",), {"messages"}),
        (("read",), {"read"}),
        (("chat",), {"models"}),
        ((), set()),
        (("messages", "chat", "read"), {"messages", "read", "models"}),
    ],
)
async def test_a_key_is_good_for_its_scopes_and_403_for_anything_else(
    make_settings: MakeSettings, scopes: tuple[str, ...], allowed: set[str]
) -> None:
    async with opened(make_settings, api=named(scopes=scopes)) as door:
        answers = {
            "messages": await post(door, SHOP),
            "read": await door.request("GET", f"/v1/messages/in_{'0' * 30}", bearer(SHOP)),
            "models": await door.request("GET", "/v1/models", bearer(SHOP)),
        }
        refused = {name for name, answer in answers.items() if answer.status_code == 403}
        assert refused == answers.keys() - allowed
        assert (
            await door.request("GET", "/v1/models", bearer("wrong"))
        ).status_code == 401  # no scope is told to strangers
        chat = await door.request("POST", "/v1/chat/completions", bearer(SHOP), b"{}")
        assert chat.status_code == (400 if "models" in allowed else 403)
        follow = await door.request("HEAD", f"/v1/sessions/{SHOP_CHAT}/events", bearer(SHOP))
        assert follow.status_code == (200 if "read" in allowed else 403)


async def test_a_keys_own_quota_counts_instead_of_the_one_for_all_senders(make_settings: MakeSettings) -> None:
    quota = QuotaSettings(sender_messages_per_minute=1)
    async with opened(make_settings, api=named(messages_per_minute=3), quota=quota) as door:
        shop = [(await post(door, SHOP, id=f"{n}")).status_code for n in range(4)]
        other = [(await post(door, OTHER, id=f"{n}")).status_code for n in range(2)]
        assert (shop, other) == ([202, 202, 202, 429], [202, 429])


async def test_a_key_may_have_so_many_conversations_in_flight_and_others_are_not_counted(
    make_settings: MakeSettings,
) -> None:
    async with opened(make_settings, api=named(turns_in_flight=2)) as door:
        shop = [(await post(door, SHOP, chat={"id": f"c{n}"})).status_code for n in range(3)]
        other = [(await post(door, OTHER, chat={"id": f"c{n}"})).status_code for n in range(3)]
        assert (shop, other) == ([202, 202, 429], [202, 202, 202])

"""Replays, rotation and removal: an event counts once, and a secret for as long as it is configured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from shared import signing
from shared.pipeline import open_pipeline
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.conftest import WEBHOOK_SECRET
from tests.support.door import Door, a_body, open_door, signed
from tests.support.pipe import Rig

MakeSettings = Callable[..., Settings]
OLD, NEW = WEBHOOK_SECRET, "whsec_bmV3IHNlY3JldCwgbmV3IHNlY3JldCwgbmV3IHM="


def key(secret: str) -> bytes:
    return signing.decode_secret(SecretStr(secret))


def secrets(*texts: str) -> WebhookSettings:
    return WebhookSettings(secrets=tuple(SecretStr(text) for text in texts))


async def test_a_replayed_request_is_answered_and_does_nothing(door: Door, rig: Rig) -> None:
    body = a_body()
    request = signed(body, "msg_1")
    first, again = await door.post(body, request), await door.post(body, request)
    assert (first.json()["status"], again.json()["status"]) == ("accepted", "duplicate")
    await rig.run_turns()
    assert (await door.post(body, request)).json()["status"] == "duplicate"
    assert await rig.transcript() == ["hello", "echo: hello"]
    assert (await door.stored())["inbox"] == 1


async def test_a_replay_outside_the_window_is_401_though_the_event_is_known(door: Door) -> None:
    body = a_body()
    assert (await door.post(body, signed(body, "msg_1"))).status_code == 200
    assert (await door.post(body, signed(body, "msg_1", ahead=-signing.TOLERANCE_SECONDS - 5))).status_code == 401


async def test_an_event_signed_again_later_is_still_the_same_event(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniqueness of events does not end with the window: it is kept by the journal."""
    body = a_body()
    assert (await door.post(body, signed(body, "msg_1"))).json()["status"] == "accepted"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 30 * 24 * 3600)
    assert (await door.post(body, signed(body, "msg_1"))).json()["status"] == "duplicate"


async def test_no_spelling_of_a_request_makes_it_another_event(door: Door, subtests: pytest.Subtests) -> None:
    """What decides is the id that was signed; everything else about a request may vary without being asked."""
    body = a_body()
    good = signed(body, "msg_1")
    assert (await door.post(body, good)).json()["status"] == "accepted"
    signature, foreign = good["webhook-signature"], signing.sign(b"x" * 16, "msg_1", 1, body)
    variants: dict[str, list[tuple[str, str]]] = {
        "names in capitals": [(name.upper(), value) for name, value in good.items()],
        "headers in another order": list(reversed(good.items())),
        "another's signature first": [*list(good.items())[:2], ("webhook-signature", f"{foreign} {signature}")],
        "another's signature last": [*list(good.items())[:2], ("webhook-signature", f"{signature} {foreign}")],
        "the signature twice": [*list(good.items())[:2], ("webhook-signature", f"{signature} {signature}")],
        "further headers": [*good.items(), ("x-request-id", "another"), ("user-agent", "another")],
    }
    for how, headers in variants.items():
        with subtests.test(how):
            assert (await door.post(body, headers)).json()["status"] == "duplicate"
    again = signed(body, "msg_1", ahead=7)  # a redelivery, signed anew
    assert (await door.post(body, again)).json()["status"] == "duplicate"
    with_query = await door.request("POST", "/webhooks/webhook?a=1&b=2", good, body)
    assert with_query.json()["status"] == "duplicate"
    assert (await door.stored())["inbox"] == 1


async def test_a_malformed_request_that_is_replayed_is_recorded_once(door: Door) -> None:
    body = b"{" + b"x" * 10_000
    good = signed(body, "msg_1")
    answers = await asyncio.gather(*(door.post(body, good) for _ in range(8)))
    assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(200, "recorded")}
    assert (await door.stored())["dead"] == 1
    assert (await door.post(body + b"y", signed(body + b"y", "msg_1"))).json()["status"] == "recorded"
    assert (await door.stored())["dead"] == 2


@pytest.mark.parametrize("how", ["base64url", "without padding", "lower case", "with a space", "v1=", "quoted"])
async def test_a_signature_has_one_spelling(door: Door, how: str) -> None:
    n = 0
    while True:  # until the signature holds what the spellings differ in
        n += 1
        body = a_body(text=f"hello {n}")
        good = signed(body, "msg_1")
        signature = good["webhook-signature"]
        if "+" in signature and "/" in signature and signature.lower() != signature:
            break
    spelled = {
        "base64url": signature.replace("+", "-").replace("/", "_"),
        "without padding": signature.rstrip("="),
        "lower case": "v1," + signature[3:].lower(),
        "with a space": signature[:10] + " " + signature[10:],
        "v1=": signature.replace("v1,", "v1="),
        "quoted": f'"{signature}"',
    }[how]
    assert (await door.post(body, {**good, "webhook-signature": spelled})).status_code == 401
    assert (await door.post(body, good)).status_code == 200


async def test_a_removed_secret_and_a_removed_key_are_refused_from_the_next_start(make_settings: MakeSettings) -> None:
    body = a_body()
    before = make_settings(webhook=secrets(OLD), api=ApiSettings(keys=(SecretStr("old-key"), SecretStr("new-key"))))
    async with open_pipeline(before) as pipe, open_door(pipe) as door:
        assert (await door.post(body, signed(body, secret=key(OLD)))).status_code == 200
        assert (await _post_api(door, "old-key")).status_code == 202
    after = make_settings(webhook=secrets(NEW), api=ApiSettings(keys=(SecretStr("new-key"),)))
    async with open_pipeline(after) as pipe, open_door(pipe) as door:
        assert (await door.post(body, signed(body, secret=key(OLD)))).status_code == 401
        assert (await _post_api(door, "old-key")).status_code == 401
        assert (await door.post(body, signed(body, "msg_2", secret=key(NEW)))).status_code == 200
        assert (await _post_api(door, "new-key")).status_code == 202


async def _post_api(door: Door, api_key: str) -> httpx.Response:
    return await door.request("POST", "/v1/messages", {"authorization": f"Bearer {api_key}"}, a_body())

"""The HTTP surface under hostile input: a short answer, one log line, and nothing kept but a record."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from pydantic import SecretStr

from producers.server.app import build_app
from shared import metrics
from shared.embedded import child
from shared.errors import ConfigurationError
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.api import ApiSettings
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from shared.store.dead import PAYLOAD_LIMIT
from tests.conftest import WEBHOOK_SECRET
from tests.support.door import API_KEY, WAIT_SECONDS, Door, a_body, open_door, signed
from tests.support.outage import start_process
from tests.support.pipe import Rig, key_of

MakeSettings = Callable[..., Settings]


@pytest.fixture
async def door(pipe: Pipeline) -> AsyncIterator[Door]:
    async with open_door(pipe) as opened:
        yield opened


# What comes in.


async def test_a_signed_message_is_accepted_once_and_answered(door: Door, rig: Rig) -> None:
    body = a_body(id="evt_1")
    first = await door.post(body, signed(body, "evt_1"))
    again = await door.post(body, signed(body, "evt_1"))
    assert (first.status_code, first.json()["status"]) == (200, "accepted")
    assert (again.status_code, again.json()) == (200, {**first.json(), "status": "duplicate"})
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
    late = await door.post(body, signed(body, "evt_1"))
    assert late.json()["status"] == "duplicate"


async def test_the_event_is_known_by_the_id_in_its_body_else_by_its_header(door: Door) -> None:
    body = a_body(id="evt_1")
    first = await door.post(body, signed(body, "msg_1"))
    again = await door.post(body, signed(body, "msg_2"))
    assert (first.json()["status"], again.json()["status"]) == ("accepted", "duplicate")
    bare = a_body()
    statuses = [(await door.post(bare, signed(bare, id))).json()["status"] for id in ("msg_1", "msg_1", "msg_2")]
    assert statuses == ["accepted", "duplicate", "accepted"]


async def test_a_message_posted_to_the_api_is_202_and_200_when_it_was_there_before(door: Door, rig: Rig) -> None:
    first, again = [await door.post_api(a_body(id="evt_1")) for _ in range(2)]
    key = "agent:main:api:dm:c1"
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json() == {"id": first.json()["id"], "state": "pending", "session_key": key}
    await rig.run_turns(key)
    assert (await door.post_api(a_body(id="evt_1"))).json()["state"] == "answered"
    assert (await door.post_api(a_body())).status_code == (await door.post_api(a_body())).status_code == 202


async def test_the_same_event_posted_many_times_at_once_is_taken_once(door: Door) -> None:
    answers = await asyncio.gather(*(door.post_api(a_body(id="evt_1")) for _ in range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [202]
    assert len({answer.text for answer in answers}) == 1
    assert (await door.stored())["inbox"] == 1


async def test_a_duplicate_that_says_something_else_raises_an_alarm_and_is_not_taken(door: Door, rig: Rig) -> None:
    conflicts = metrics.DEDUP_CONFLICT.labels("api")._value
    before = conflicts.get()
    await door.post_api(a_body(id="evt_1"))
    same = a_body(id="evt_1", user={"id": "u1", "name": "Ann with another name"})
    assert (await door.post_api(same)).status_code == 200
    assert (conflicts.get(), door.lines_at("error")) == (before, [])
    others = (a_body(id="evt_1", text="other"), a_body(id="evt_1", chat={"id": "c2"}), a_body(id="evt_1", thread="t"))
    for n, other in enumerate(others, 1):
        assert (await door.post_api(other)).status_code == 200
        assert conflicts.get() == before + n
        assert "hello" not in repr(door.lines_at("error")[-1]) and "other" not in repr(door.lines_at("error")[-1])
    assert (await door.stored())["inbox"] == 1
    key = key_of(platform="api")
    await rig.run_turns(key)
    session = await rig.pipe.store.sessions.find(key)
    assert session is not None and await rig.pipe.store.delete(session["id"], session["version"])
    await door.post_api(others[0])  # of what was deleted, nobody knows what it said
    assert conflicts.get() == before + 3


# Who is not let in.


def _unsigned(body: bytes) -> dict[str, str]:
    return {}


HEADERS: dict[str, Callable[[bytes], Any]] = {
    "unsigned": _unsigned,
    "signed with another secret": lambda body: signed(body, secret=b"another secret!!"),
    "signed for another body": lambda body: signed(body + b" "),
    "signed under another id": lambda body: {**signed(body, "evt_1"), "webhook-id": "evt_2"},
    "stale": lambda body: signed(body, ahead=-301),
    "from the future": lambda body: signed(body, ahead=330),
    "signed in another time": lambda body: {
        **signed(body),
        "webhook-timestamp": signed(body, ahead=5)["webhook-timestamp"],
    },
    "without an id": lambda body: {**signed(body), "webhook-id": ""},
    "without a timestamp": lambda body: {**signed(body), "webhook-timestamp": ""},
    "without a signature": lambda body: {**signed(body), "webhook-signature": ""},
    "with garbage for a timestamp": lambda body: {**signed(body), "webhook-timestamp": "\xb2\xff"},
    "with a huge timestamp": lambda body: {**signed(body), "webhook-timestamp": "9" * 5000},
    "with garbage for a signature": lambda body: {**signed(body), "webhook-signature": "\xff v1, v1,\xe9 ,,"},
    "with garbage for an id": lambda body: {**signed(body), "webhook-id": "\xff\xfe"},
    "with a long id": lambda body: signed(body, "x" * 257),
    "with two ids": lambda body: [*signed(body, "evt_1").items(), ("webhook-id", "evt_2")],
    "with two timestamps": lambda body: [*signed(body).items(), ("webhook-timestamp", "1")],
    "with two signatures in two headers": lambda body: [*signed(body).items(), ("webhook-signature", "v1,x")],
    "with a bearer key instead": lambda body: {"authorization": f"Bearer {API_KEY}"},
}


async def test_a_webhook_that_is_not_signed_for_us_is_401(door: Door, subtests: pytest.Subtests) -> None:
    body = a_body()
    for how, headers in HEADERS.items():
        with subtests.test(how):
            response = await door.post(body, headers(body))
            assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
            await door.refused(401)


TOKENS: dict[str, Any] = {
    "nothing": {},
    "nothing after the scheme": {"authorization": "Bearer "},
    "the scheme alone": {"authorization": "Bearer"},
    "another key": {"authorization": "Bearer wrong-key"},
    "the beginning of the key": {"authorization": f"Bearer {API_KEY[:-1]}"},
    "another scheme": {"authorization": f"Basic {API_KEY}"},
    "the key without its scheme": {"authorization": API_KEY},
    "bytes that are no text": {"authorization": "Bearer \xff\xfe"},
    "two headers": [("authorization", f"Bearer {API_KEY}"), ("authorization", "Bearer x")],
    "a signature instead": signed(a_body()),
}


async def test_an_api_call_without_a_key_is_401(door: Door, subtests: pytest.Subtests) -> None:
    calls = [("POST", "/v1/messages"), ("GET", "/v1/messages/in_1"), ("GET", f"/v1/sessions/{key_of()}/events")]
    for (method, path), (how, headers) in product(calls, TOKENS.items()):
        with subtests.test(how, path=path):
            response = await door.request(method, path, headers, a_body() if method == "POST" else b"")
            assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
            await door.refused(401)


async def test_without_keys_the_api_lets_nobody_in_and_without_secrets_there_is_no_webhook(
    make_settings: MakeSettings,
) -> None:
    async with (
        open_pipeline(make_settings(api=ApiSettings(), webhook=WebhookSettings())) as pipe,
        open_door(pipe) as door,
    ):
        for token in ("", "Bearer ", f"Bearer {API_KEY}"):
            response = await door.client.post("/v1/messages", content=a_body(), headers={"authorization": token})
            assert response.status_code == 401
        body = a_body()
        assert (await door.post(body, signed(body))).status_code == 404
    off = {"api": ApiSettings(enabled=False, keys=(SecretStr(API_KEY),))}
    off["webhook"] = WebhookSettings(enabled=False, secrets=(SecretStr(WEBHOOK_SECRET),))  # type: ignore[assignment]
    async with open_pipeline(make_settings(**off)) as pipe, open_door(pipe) as door:
        assert (await door.post_api(a_body())).status_code == 404
        assert (await door.post(body, signed(body))).status_code == 404


async def test_a_receiver_whose_secret_cannot_work_does_not_start(make_settings: MakeSettings) -> None:
    webhook = WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET), SecretStr("hunter2-hunter2-hunter2")))
    async with open_pipeline(make_settings(webhook=webhook)) as pipe:
        with pytest.raises(ConfigurationError) as caught:
            build_app(pipe)
    assert "hunter2" not in str(caught.value)


# What cannot be understood.

BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"hello",
    "half of it": b'{"chat": {"id": "c1"}',
    "not UTF-8": b'{"text": "\xff\xfe"}',
    "a million deep and open": b"[" * 1_000_000,
    "half a million deep": b"[" * 500_000 + b"]" * 500_000,
    "deep objects": b'{"a":' * 200_000,
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "a lone surrogate in the text": a_body().replace(b'"hello"', b'"\\ud800"'),
    "a lone surrogate in an id": a_body().replace(b'"c1"', b'"\\udfff"'),
    "NUL in the chat id": a_body(chat={"id": "a\0b"}),
    "NUL in the user id": a_body(user={"id": "\0"}),
    "NUL in the thread": a_body(thread="\0"),
    "NUL in the event id": a_body(id="a\0b"),
    "NUL in an unknown field": a_body(**{"\0": 1}),
    "unknown fields": a_body(colour="red"),
    "unknown fields in the chat": a_body(chat={"id": "c1", "admin": True}),
    "no chat": a_body(chat=None),
    "no chat id": a_body(chat={}),
    "no user id": a_body(user={"name": "Ann"}),
    "an empty chat id": a_body(chat={"id": ""}),
    "no text": a_body(text=None),
    "text that is a list": a_body(text=["hello"]),
    "an id that is true": a_body(chat={"id": True}),
    "an id that is an object": a_body(id={"$ne": None}),
    "a huge integer for an id": a_body().replace(b'"c1"', b"1" * 400),
    "a huge integer for a time": a_body(sent_at=2**60),
    "an id too long": a_body(chat={"id": "x" * 257}),
    "no such chat type": a_body(chat={"id": "c1", "type": "party"}),
    "a media address of another kind": a_body(media=[{"url": "file:///etc/passwd"}]),
    "text too long": a_body(text="x" * 200_001),
    "no text, in a form of its own": b"  " + a_body(text=None),
}


async def test_a_signed_webhook_that_cannot_be_understood_is_200_and_recorded(
    door: Door, subtests: pytest.Subtests
) -> None:
    for n, (what, body) in enumerate(BODIES.items(), 1):
        with subtests.test(what):
            response = await door.post(body, signed(body, f"evt_{n}"))
            assert (response.status_code, response.json()["status"]) == (200, "recorded")
            await door.refused(None, dead=n)
            [row, *_] = await door.pipe.store.dead.all(state="open", limit=1)
            found = await door.pipe.store.dead.find(row["id"])
            assert found is not None
            about = (found["kind"], found["ref"], found["reason"], found["session_key"])
            assert about == ("request", f"evt_{n}", "malformed", None)
            assert found["detail"] == response.json()["reason"] != ""
            assert found["payload"] == body.decode(errors="replace")[:PAYLOAD_LIMIT]


async def test_an_api_message_that_cannot_be_understood_is_422_and_leaves_nothing(
    door: Door, subtests: pytest.Subtests
) -> None:
    for what, body in BODIES.items():
        with subtests.test(what):
            response = await door.post_api(body)
            assert response.status_code == 422
            assert 0 < len(response.json()["error"]) < 200
            await door.refused(422)


async def test_headers_that_repeat_or_surprise_harm_nobody(door: Door) -> None:
    body = a_body()
    odd = [
        ("content-type", "text/xml"),
        ("content-type", "application/json"),
        ("x-odd", "\xff"),
        ("cookie", "a=b; " * 500),
    ]
    response = await door.post(body, [*signed(body).items(), *odd])
    assert response.json()["status"] == "accepted"
    for length in ("\xb2", "-1", "1e3", "9" * 5000, "0x10"):
        refused = await door.request("POST", "/v1/messages", [*door.key, ("content-length", length)])
        assert refused.status_code == 413


async def test_a_route_that_is_not_there_is_one_line_too(door: Door, subtests: pytest.Subtests) -> None:
    for method, path, status in [
        ("GET", "/nowhere", 404),
        ("GET", "/webhooks/webhook", 405),
        ("DELETE", "/v1/messages", 405),
        ("POST", "/webhooks/telegram", 404),
        ("GET", "/" + "x" * 5000, 404),
        ("GET", "/%00%ff%0a", 404),
        ("POST", "/readyz", 405),
    ]:
        with subtests.test(method=method, path=path):
            response = await door.request(method, path)
            assert response.status_code == status and set(response.json()) == {"error"}
            assert ("allow" in response.headers) is (status == 405)  # which methods there are
            await door.refused(status)


async def test_the_front_page_lists_what_there_is(door: Door) -> None:
    page = await door.request("GET", "/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/plain")
    for route in ("POST  /webhooks/webhook", "POST  /v1/messages", "GET   /openapi.json", "GET   /metrics"):
        assert route in page.text
    assert "HEAD" not in page.text


async def test_an_error_that_nobody_expected_says_nothing_of_itself(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"it knows {API_KEY}")

    monkeypatch.setattr(door.pipe.store.journal, "accept", broken)
    response = await door.post_api(a_body())
    assert (response.status_code, response.json()) == (500, {"error": "internal error"})
    assert [line["log_level"] for line in door.lines] == ["error"]
    assert await door.nothing_stored()


# Text that not every database can store.


async def test_text_with_nul_characters_goes_through_to_the_reply(door: Door, rig: Rig) -> None:
    body = a_body(
        id="evt_1", text="be\0fore", user={"id": "u1", "name": "A\0nn"}, media=[{"url": "https://x/\0", "name": "\0"}]
    )
    assert (await door.post(body, signed(body))).json()["status"] == "accepted"
    await rig.run_turns()
    assert await rig.transcript() == ["be\ufffdfore", "echo: be\ufffdfore"]
    [part] = await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10)
    assert part.text == "echo: be\ufffdfore" and part.in_reply_to == ("evt_1",)


async def test_ids_with_every_delimiter_go_through_to_the_reply(door: Door, rig: Rig) -> None:
    chat = "a:b%3A{c}=d/e?f#g *[x] \N{PILE OF POO}"
    body = a_body(id="e:{1}%\N{PILE OF POO}", chat={"id": chat})
    answer = await door.post_api(body)
    key = answer.json()["session_key"]
    await rig.run_turns(key)
    assert await rig.transcript(key) == ["hello", "echo: hello"]
    trace = await door.client.get(f"/v1/messages/{answer.json()['id']}", headers=dict(door.key))
    assert (trace.json()["state"], trace.json()["session_key"]) == ("answered", key)
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


async def test_the_longest_ids_are_kept_by_both_databases(door: Door, rig: Rig) -> None:
    long = "\N{PILE OF POO}" * 64
    for n, chat in enumerate((long, long[:-1] + "x")):
        body = a_body(id=f"{long[:60]}{n}", chat={"id": chat, "type": "group"}, user={"id": "é" * 128})
        answer = await door.post_api(body)
        assert answer.status_code == 202
        await rig.run_turns(answer.json()["session_key"])
        assert await rig.transcript(answer.json()["session_key"]) == ["hello", "echo: hello"]


async def test_a_receiver_process_writes_one_line_of_json_per_refusal(settings: Settings, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = start_process(settings, "receive", "--port", "0", stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).decode().removeprefix("ready ").strip()
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS, trust_env=False) as client:
            for content in (b"hello", b"x" * 10_000_000, b"[" * 1_000_000):
                for headers in ({}, signed(content), {"authorization": f"Bearer {API_KEY}"}):
                    path = "/v1/messages" if "authorization" in headers else "/webhooks/webhook"
                    assert (await client.post(path, content=content, headers=headers)).status_code in (
                        200,
                        401,
                        413,
                        422,
                    )
    finally:
        child.stop(process, signal.SIGTERM, 20)
    lines = [orjson.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    told = [line for line in lines if line["event"] in ("request refused", "malformed: recorded")]
    assert len(told) == 9 and all(line["level"] == "warning" for line in told)
    assert [line for line in lines if line["level"] in ("warning", "error", "critical")] == told
    text = (tmp_path / "log").read_text()
    for secret in (API_KEY, WEBHOOK_SECRET, settings.database, *settings.redis_urls(), "Traceback", "hello"):
        assert secret not in text


async def test_H4_a_delivery_counts_once_and_only_signed_in_time_and_of_a_sane_size(door: Door, rig: Rig) -> None:
    """Ours remembers deliveries for ever, and limits what waits in a chat and what an address may cost (SECURITY.md)."""
    body = a_body()
    assert (await door.post(body, signed(body))).status_code == 200
    assert (await door.post(body, signed(body))).status_code == 200
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
    late = signed(body, "evt_2", ahead=-301)
    large = a_body(text="x" * 1_100_000)
    refused = [
        await door.post(body, late),
        await door.post(body, {**signed(body, "evt_3"), "webhook-signature": "v1,bm9uZQ=="}),
        await door.post(body, {}),
        await door.post(large, signed(large, "evt_4")),
    ]
    assert [answer.status_code for answer in refused] == [401, 401, 401, 413]
    assert await rig.transcript() == ["hello", "echo: hello"]

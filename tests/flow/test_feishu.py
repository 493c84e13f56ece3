"""Feishu from raw request or frame to sent reply: real Valkey, a real worker, and a local open platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from producers.feishu.events import Events
from producers.feishu.listen import LongConnection
from producers.feishu.secrecy import opened
from producers.listening import Listener
from producers.spool import Spool, spool_path
from shared import keys
from shared.agent.turn import Result, Turn
from shared.leader import Leader
from shared.messages import Entry, Media, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.feishu import FeishuSettings
from shared.platforms.feishu_api import open_api
from shared.settings import Settings
from tests.store.books import ask
from tests.support.door import Door, open_door
from tests.support.feishu import (
    APP_ID,
    APP_SECRET,
    SERVICE,
    FakeFeishu,
    Refused,
    Trouble,
    encrypted,
    open_feishu,
    signed,
)
from tests.support.servers import Databases
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent

PAYLOADS = Path(__file__).parents[1] / "payloads/feishu"
KEY, TOKEN = "canary7f3a9c key", "canary7f3a9cToken"
ANN, GROUP = "oc_ann", "oc_group"
MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with open_feishu() as opened_fake:
        yield opened_fake


def block(fake: FakeFeishu, **changes: Any) -> FeishuSettings:
    values = {"app_id": APP_ID, "app_secret": SecretStr(APP_SECRET), "api_url": fake.url, "allowed_users": ("ou_ann",)}
    return FeishuSettings(**{**values, **changes})


def by_webhook(fake: FakeFeishu, **changes: Any) -> FeishuSettings:
    return block(fake, encrypt_key=(SecretStr(KEY),), **changes)


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeFeishu) -> Settings:
    return make_settings(feishu=by_webhook(fake))


@dataclass
class Hook:
    """Feishu's side of the webhook. Whoever writes is there to be answered."""

    door: Door
    fake: FakeFeishu

    async def send(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await self.door.request("POST", "/webhooks/feishu", tuple(headers.items()), body)

    async def post(self, payload: Any, key: str = KEY) -> httpx.Response:
        body = encrypted(orjson.dumps(payload), key)
        return await self.send(body, signed(body, key))

    async def bring(self, *payloads: Any) -> None:
        for payload in payloads:
            happened(self.fake, payload)
            response = await self.post(payload)
            assert (response.status_code, response.content) == (200, b"{}")

    async def nothing_more(self) -> None:
        """What is brought now is answered, and nothing before it was."""
        before = len(self.fake.sends())
        await self.bring(said("the end"))
        await self.fake.until(lambda fake: "echo: the end" in fake.texts(ANN))
        assert len(self.fake.sends()) == before + 1


@pytest.fixture
async def hook(pipe: Pipeline, fake: FakeFeishu) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe):
        yield Hook(door, fake)


def payload(name: str) -> dict[str, Any]:
    return opened([b"test key"], orjson.loads((PAYLOADS / f"{name}.json").read_bytes()))


def happened(fake: FakeFeishu, event: dict[str, Any]) -> None:
    """The message of an event is one that can be replied to."""
    message = event["event"].get("message")
    if isinstance(message, dict) and "message_id" in message:
        fake.messages[message["message_id"]] = {"chat": message["chat_id"], "thread": message.get("thread_id")}


_ids = iter(range(1, 10**9))


def said(text: str, chat: str = ANN, **message: Any) -> dict[str, Any]:
    """Ann says something; in a group, to the bot."""
    event, id = payload("direct" if chat == ANN else "group_mention"), next(_ids)
    event["header"]["event_id"] = f"ev-{id}"
    words = text if chat == ANN else f"@_user_1 {text}"
    event["event"]["message"] |= {"message_id": f"om_said{id}", "chat_id": chat, **message}
    event["event"]["message"]["content"] = orjson.dumps({"text": words}).decode()
    return event


# From the event to the reply.

ANSWERED = [
    ("direct", ANN, None, "echo: hello"),
    ("group_mention", GROUP, None, "echo: what does @Bob say?"),
    ("group_bare_mention", GROUP, None, "echo: @Helper"),
    ("thread", GROUP, "omt_1", "echo: go on"),
    ("topic_group", GROUP, "omt_2", "echo: a new topic"),
    ("reply_chain", GROUP, None, "echo: why?"),
    ("sticker", ANN, None, "echo: [sticker]"),
    ("encrypted_group_mention", GROUP, None, "echo: status?"),
]
LEFT = [
    "group_unaddressed",
    "group_mention_of_all",
    "group_looks_like_a_mention",
    "own_message",
    "other_bots_message",
    "system_message",
    "recall",
    "reaction",
    "read",
    "bot_added",
    "another_app",
    "no_words",
    "old_form_other",
]


async def test_a_message_is_answered_where_it_was_said(hook: Hook, fake: FakeFeishu, subtests: pytest.Subtests) -> None:
    for name, chat, thread, answer in ANSWERED:
        with subtests.test(name):
            event = payload(name)
            await hook.bring(event)
            await fake.until(lambda fake: fake.shown)
            [call], [shown] = fake.sends(), fake.shown
            assert (shown["chat"], shown["thread"], shown["text"]) == (chat, thread, answer)
            id = event["event"]["message"]["message_id"]
            if chat == ANN:
                assert (call.path, call.query) == ("/open-apis/im/v1/messages", {"receive_id_type": "chat_id"})
                assert call.fields["receive_id"] == chat
            else:
                assert call.path == f"/open-apis/im/v1/messages/{id}/reply"
                assert call.fields["reply_in_thread"] is (thread is not None)
            assert call.fields["msg_type"] == "post" and len(call.fields["uuid"]) <= 50
        fake.forget()
    await hook.nothing_more()


async def test_what_is_not_for_us_is_taken_and_not_answered(hook: Hook, subtests: pytest.Subtests) -> None:
    for name in LEFT:
        with subtests.test(name):
            await hook.bring(payload(name))
            assert not any((await hook.door.stored()).values())
    await hook.nothing_more()


async def test_an_event_of_the_first_form_is_answered(hook: Hook, fake: FakeFeishu) -> None:
    fake.messages["om_old1"] = {"chat": GROUP, "thread": None}
    await hook.bring(payload("old_form_direct"), payload("old_form_group_mention"))
    await fake.until(lambda fake: len(fake.shown) == 2)
    assert (fake.texts(ANN), fake.texts(GROUP)) == (["echo: hello"], ["echo: status of @Bob"])


async def test_a_message_is_answered_once_however_often_and_under_whatever_event_it_comes(
    hook: Hook, fake: FakeFeishu
) -> None:
    event = said("once")
    again = {**event, "header": {**event["header"], "event_id": "after-a-reconnection"}}
    await hook.bring(event, event, again)
    await fake.until(lambda fake: fake.texts(ANN))
    await hook.nothing_more()
    assert fake.texts(ANN) == ["echo: once", "echo: the end"]


async def test_a_thread_is_a_conversation_of_its_own(hook: Hook, fake: FakeFeishu, pipe: Pipeline) -> None:
    await hook.bring(payload("thread"), payload("group_mention"))
    await fake.until(lambda fake: len(fake.texts(GROUP)) == 2)
    group = f"agent:main:feishu:group:{GROUP}:s=tk1"
    keys = (f"{group}:t=omt_1", f"{group}:a=on_ann")  # by union id: that stays, whichever app is asked
    assert [await pipe.store.sessions.find(key) is not None for key in keys] == [True, True]


async def test_files_reach_the_agent(hook: Hook, fake: FakeFeishu, pipe: Pipeline) -> None:
    fake.files["file_v3_00a"] = b"%PDF-1.7 report"
    await hook.bring(payload("file"), payload("post"))
    await fake.until(lambda fake: len(fake.shown) == 2)
    rows = await ask(pipe.store, "SELECT data FROM messages WHERE role = 'user'")
    media = [file for row in rows for file in orjson.loads(row["data"])["media"]]
    assert {(file["name"], file["type"]) for file in media} == {
        ("report.pdf", "application/pdf"),
        ("image.png", "image/png"),
    }
    assert all(file["url"].startswith("blob:") for file in media)


async def test_a_stranger_is_turned_away_and_the_log_says_whom_one_could_allow(hook: Hook) -> None:
    event = said("let me in")
    event["event"]["sender"]["sender_id"] = {"open_id": "ou_spy", "union_id": "on_spy", "user_id": "ou_ann"}
    await hook.bring(event)
    assert {table for table, rows in (await hook.door.stored()).items() if rows} == {"outbox"}  # the pairing code
    [line] = hook.door.lines_at("warning")
    assert (line["event"], line["user"]) == ("stranger turned away", "ou_spy")


async def test_a_union_id_lets_in_as_well(make_settings: MakeSettings, fake: FakeFeishu) -> None:
    settings = make_settings(feishu=by_webhook(fake, allowed_users=("on_ann",)))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door, working(pipe):
        await Hook(door, fake).bring(said("hi"))
        await fake.until(lambda fake: fake.texts(ANN))


# The webhook's door.


async def test_what_feishu_did_not_sign_is_not_read(pipe: Pipeline, fake: FakeFeishu) -> None:
    event = said("hello")
    body = encrypted(orjson.dumps(event), KEY)
    good, other = signed(body, KEY), encrypted(orjson.dumps(said("other")), KEY)
    wrong: list[tuple[bytes, dict[str, str]]] = [
        (other, good),
        (body, {}),
        (body, signed(body, "other")),
        (body, {**good, "X-Lark-Signature": good["X-Lark-Signature"].upper()}),
        (body, {**good, "X-Lark-Request-Nonce": "n2"}),
        (body + b" ", good),
        (orjson.dumps(event), {}),  # with the right token, but a key is set
        (b"", {}),
        (b"\xff", {}),
    ]
    async with open_door(pipe) as door:
        for content, headers in wrong:
            response = await Hook(door, fake).send(content, headers)
            assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
            await door.refused(401)
    assert fake.calls == []  # nobody is asked anything for a request without a proof


async def test_a_token_proves_a_request_where_there_is_no_key(make_settings: MakeSettings, fake: FakeFeishu) -> None:
    tokens = (SecretStr(TOKEN), SecretStr(f"{TOKEN}2"))
    settings = make_settings(feishu=block(fake, verification_token=tokens))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door:
        hook = Hook(door, fake)
        for token in (None, "", "wrong", 5, [TOKEN], f"{TOKEN} "):
            event = said("hello")
            event["header"]["token"] = token
            response = await hook.send(orjson.dumps({**event, "token": TOKEN}), {})
            assert response.status_code == 401
            await door.refused(401)
        secret = encrypted(orjson.dumps(said("hello")), KEY)
        assert (await hook.send(secret, signed(secret, KEY))).status_code == 401
        await door.refused(401)
        async with working(pipe):
            for token in (TOKEN, f"{TOKEN}2"):
                event = said(f"by {token[-1]}")
                event["header"]["token"] = token
                assert (await hook.send(orjson.dumps(event), {})).status_code == 200
            old = {**payload("old_form_direct"), "token": TOKEN}
            assert (await hook.send(orjson.dumps(old), {})).status_code == 200
            await fake.until(lambda fake: len(fake.texts(ANN)) == 3)


async def test_the_handshake_is_answered_to_whoever_knows_key_and_token(
    make_settings: MakeSettings, fake: FakeFeishu, subtests: pytest.Subtests
) -> None:
    def asking(token: str | None = TOKEN, challenge: Any = "ajls") -> bytes:
        return orjson.dumps({"challenge": challenge, "token": token, "type": "url_verification"})

    tokens, keys = (SecretStr(TOKEN),), (SecretStr(KEY),)
    bodies: list[tuple[dict[str, Any], bytes, int]] = [
        ({"verification_token": tokens}, asking(), 200),
        ({"verification_token": tokens}, asking("wrong"), 401),
        ({"verification_token": tokens, "encrypt_key": keys}, encrypted(asking(), KEY), 200),
        ({"verification_token": tokens, "encrypt_key": keys}, encrypted(asking("wrong"), KEY), 401),
        ({"verification_token": tokens, "encrypt_key": keys}, encrypted(asking(), "other"), 401),
        ({"verification_token": tokens, "encrypt_key": keys}, asking(), 401),
        ({"encrypt_key": keys}, encrypted(asking("any"), KEY), 200),
        ({"encrypt_key": keys}, encrypted(asking("any"), "other"), 401),
    ]
    for changes, body, status in bodies:
        for headers in ({}, signed(body, KEY)) if status == 200 else ({},):
            async with open_pipeline(make_settings(feishu=block(fake, **changes))) as pipe, open_door(pipe) as door:
                with subtests.test(changes=sorted(changes), body=body):
                    response = await Hook(door, fake).send(body, headers)
                    assert response.status_code == status
                    assert status == 401 or response.content == b'{"challenge":"ajls"}'
                    assert await door.nothing_stored()


async def test_what_cannot_be_understood_is_taken_and_recorded_without_its_token(hook: Hook, pipe: Pipeline) -> None:
    broken = said("hello", create_time=5)
    assert broken["header"]["token"]
    for _ in range(2):
        assert (await hook.post(broken)).status_code == 200
    undecipherable = orjson.dumps({"encrypt": "AAAA"})
    assert (await hook.send(undecipherable, signed(undecipherable, KEY))).status_code == 200
    rows = await ask(pipe.store, "SELECT reason, payload FROM dead")
    assert [row["reason"] for row in rows] == ["malformed"] * 2
    assert broken["header"]["token"] not in repr(rows)
    await hook.nothing_more()


async def test_until_feishu_says_who_we_are_it_keeps_its_events(make_settings: MakeSettings, fake: FakeFeishu) -> None:
    away = by_webhook(fake, api_url="http://127.0.0.1:9")
    wrong = by_webhook(fake, app_secret=SecretStr("other"))
    for feishu_block in (away, wrong):
        async with open_pipeline(make_settings(feishu=feishu_block)) as pipe, open_door(pipe) as door:
            response = await Hook(door, fake).post(said("x"))
            assert (response.status_code, "retry-after" in response.headers) == (503, True)
            assert await door.nothing_stored()


async def test_a_webhook_without_key_and_token_is_not_there(make_settings: MakeSettings, fake: FakeFeishu) -> None:
    async with open_pipeline(make_settings(feishu=block(fake))) as pipe, open_door(pipe) as door:
        assert (await Hook(door, fake).post(said("x"))).status_code == 404


# What is sent.


def saying(*replies: Reply) -> Agent | Answers:
    class Saying:
        async def run(self, turn: Turn) -> Result:
            return Result((Entry("assistant", "said"),), replies)

    return Saying()


@asynccontextmanager
async def answering(pipe: Pipeline, fake: FakeFeishu, agent: Agent | Answers) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe, agent):
        yield Hook(door, fake)


async def test_markdown_is_sent_as_rich_text_and_calls_nobody_else(pipe: Pipeline, fake: FakeFeishu) -> None:
    text = '# Plan\n**Now** `a < b` [docs](https://x.org/?a=1&b=2) <at user_id="all">all</at>'
    async with answering(pipe, fake, saying(Reply(text))) as hook:
        await hook.bring(said("go"))
        await fake.until(lambda fake: fake.shown)
    [shown] = fake.shown
    assert shown["kind"] == "post"
    assert shown["text"].startswith("**Plan**\n**Now** `a < b` [docs](https://x.org/?a=1&b=2) <\u200bat")


async def test_a_form_that_feishu_refuses_goes_out_as_plain_text(hook: Hook, fake: FakeFeishu) -> None:
    fake.trouble += [Refused(230099)]
    await hook.bring(said("**x**"))
    await fake.until(lambda fake: fake.shown)
    assert [call.fields["msg_type"] for call in fake.sends()] == ["post", "text"]
    assert len({call.fields["uuid"] for call in fake.sends()}) == 1
    assert fake.texts(ANN) == ["echo: **x**"]


async def test_a_long_reply_is_sent_in_parts_each_with_its_receipt(pipe: Pipeline, fake: FakeFeishu) -> None:
    lines = [f"第 {n} 行 🙂 of **many**" for n in range(1500)]
    async with answering(pipe, fake, saying(Reply("\n".join(lines)), Reply("and done"))) as hook:
        await hook.bring(said("go", GROUP, thread_id="omt_9"))
        await fake.until(lambda fake: "and done" in fake.texts(GROUP))
    assert len(fake.shown) > 3 and {shown["thread"] for shown in fake.shown} == {"omt_9"}
    found = [line for shown in fake.shown for line in shown["text"].split("\n") if line.startswith("第")]
    assert [line.split(" (")[0] for line in found] == lines
    rows = await ask(pipe.store, "SELECT receipt FROM outbox ORDER BY id")
    assert [row["receipt"] for row in rows] == [shown["id"] for shown in fake.shown]


async def test_a_message_of_ours_is_changed_later_by_its_receipt(pipe: Pipeline, fake: FakeFeishu) -> None:
    replies = iter([Reply("draft"), Reply("final", edits="om_sent"), Reply("anew", edits="om_gone")])

    class Changing:
        async def run(self, turn: Turn) -> Result:
            reply = next(replies)
            if reply.edits == "om_sent":
                reply = Reply(reply.text, edits=fake.shown[0]["id"])
            return Result((Entry("assistant", "said"),), (reply,))

    async with answering(pipe, fake, Changing()) as hook:
        for expected in (["draft"], ["final"], ["final", "anew"]):
            await hook.bring(said("go"))
            await fake.until(lambda fake, expected=expected: fake.texts(ANN) == expected)  # type: ignore[misc]
    assert [call.method for call in fake.sends()] == ["POST", "PUT", "PUT", "PUT", "POST"]


async def test_a_file_is_sent_as_a_link_and_one_that_feishu_keeps_is_set_aside(
    pipe: Pipeline, fake: FakeFeishu
) -> None:
    files = [Media("https://x.org/a.pdf", "application/pdf", "a.pdf"), Media("feishu-file:om_1/file/f1", None, None)]
    async with answering(pipe, fake, saying(*(Reply("", (file,)) for file in files), Reply("done"))) as hook:
        await hook.bring(said("go"))
        await fake.until(lambda fake: "done" in fake.texts(ANN))
    assert [(shown["text"], shown["href"]) for shown in fake.shown] == [
        ("a.pdf", "https://x.org/a.pdf"),
        ("done", None),
    ]
    [letter] = await ask(pipe.store, "SELECT reason FROM dead")
    assert letter["reason"] == "refused"


async def test_an_answer_to_a_message_that_was_withdrawn_is_sent_to_the_chat(hook: Hook, fake: FakeFeishu) -> None:
    event = said("hi", GROUP)
    response = await hook.post(event)  # nobody can reply to it any more
    assert response.status_code == 200
    await fake.until(lambda fake: fake.shown)
    assert fake.texts(GROUP) == ["echo: hi"]
    assert fake.sends()[-1].fields["receive_id"] == GROUP


@pytest.mark.parametrize("refusal", [Refused(99991400, 429, x_ogw_ratelimit_reset="1"), Refused(230020, 400)])
async def test_a_chat_waits_as_long_as_feishu_says(hook: Hook, fake: FakeFeishu, refusal: Refused) -> None:
    fake.trouble.append(refusal)
    await hook.bring(said("hi"))
    await fake.until(lambda fake: fake.shown)
    first, second = fake.sends()
    assert second.at - first.at >= 1.0 and first.fields["uuid"] == second.fields["uuid"]
    [row] = await ask(hook.door.pipe.store, "SELECT attempts, waits FROM outbox")
    assert (row["attempts"], row["waits"]) == (2, 1)


async def test_a_failure_that_passes_is_tried_again(hook: Hook, fake: FakeFeishu) -> None:
    fake.trouble.append(Trouble.PAGE)
    await hook.bring(said("hi"))
    await fake.until(lambda fake: fake.shown)
    assert fake.texts(ANN) == ["echo: hi"] and len(fake.sends()) == 2


async def test_a_token_that_ended_is_renewed_and_nothing_is_noticed(hook: Hook, fake: FakeFeishu) -> None:
    await hook.bring(said("one"))
    await fake.until(lambda fake: fake.texts(ANN) == ["echo: one"])
    fetched = len(fake.of("/internal"))
    fake.expire_token()
    await hook.bring(said("two"))
    await fake.until(lambda fake: fake.texts(ANN) == ["echo: one", "echo: two"])
    assert len(fake.of("/internal")) == fetched + 1
    rows = await ask(hook.door.pipe.store, "SELECT attempts FROM outbox")
    assert [row["attempts"] for row in rows] == [1, 1]


@pytest.mark.parametrize("code", [230002, 230013, 230022, 230027, 232009])
async def test_what_feishu_refuses_for_good_is_set_aside_and_holds_up_nothing(
    hook: Hook, fake: FakeFeishu, code: int
) -> None:
    fake.trouble.append(Refused(code))
    await hook.bring(said("one", GROUP), said("two", GROUP))
    await fake.until(lambda fake: "echo: two" in fake.texts(GROUP))
    assert fake.texts(GROUP) == ["echo: two"] and len(fake.sends()) == 2
    [letter] = await ask(hook.door.pipe.store, "SELECT reason, detail FROM dead")
    assert letter["reason"] == "refused" and str(code) in letter["detail"]


async def test_M6_a_send_whose_answer_is_lost_is_repeated_and_shown_once(hook: Hook, fake: FakeFeishu) -> None:
    fake.trouble.append(Trouble.CUT)
    await hook.bring(said("hi"))
    await fake.until(lambda fake: len(fake.sends()) == 2)
    await hook.nothing_more()
    assert fake.texts(ANN) == ["echo: hi", "echo: the end"]


# The long connection.


@asynccontextmanager
async def listening(pipe: Pipeline, pong_seconds: float = 30.0) -> AsyncIterator[None]:
    """A listener, until the block ends."""
    stopping, feishu_block = asyncio.Event(), pipe.settings.block(FeishuSettings)
    async with open_api(feishu_block, 4) as api:
        connection = LongConnection(api, feishu_block, pong_seconds=pong_seconds)
        running = asyncio.create_task(Listener(pipe, connection).run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await running


@pytest.fixture
async def held(make_settings: MakeSettings, fake: FakeFeishu) -> AsyncIterator[Pipeline]:
    async with open_pipeline(make_settings(feishu=block(fake))) as pipe:
        yield pipe


async def test_frames_are_answered_and_acknowledged_with_what_they_came_with(held: Pipeline, fake: FakeFeishu) -> None:
    await fake.bring(said("one"))  # nobody listens yet
    async with listening(held), working(held):
        await fake.until(lambda fake: fake.texts(ANN) == ["echo: one"])
        await fake.bring(said("two"), said("three"))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 3 and not fake.pending)
    first = fake.answers[0]
    assert (first.seq_id, first.log_id, first.service, first.log_id_new) == (7, 2**63 + 5, SERVICE, b"new")
    assert first.header("message_id") == "msg-1" and first.payload == b'{"code":200}'


async def test_an_event_in_several_frames_is_one(held: Pipeline, fake: FakeFeishu) -> None:
    async with listening(held), working(held):
        await fake.bring(said("长" * 3000), parts=7)
        await fake.until(lambda fake: fake.shown and not fake.pending)
    assert "".join(fake.texts(ANN)).count("长") == 3000
    assert len(fake.answers) == 1


async def test_pings_name_the_service_and_a_pong_changes_how_often_they_come(held: Pipeline, fake: FakeFeishu) -> None:
    fake.config["PingInterval"] = 600
    fake.pong = {"PingInterval": 1, "ReconnectInterval": "x", "ReconnectCount": -1}
    async with listening(held):
        await fake.until(lambda fake: len(fake.pings) >= 3)
    assert {(ping.service, ping.header("type")) for ping in fake.pings} == {(SERVICE, "ping")}


async def test_a_connection_that_is_lost_is_opened_again_and_nothing_is_doubled(
    held: Pipeline, fake: FakeFeishu
) -> None:
    async with listening(held), working(held):
        await fake.bring(said("one"))
        await fake.until(lambda fake: fake.texts(ANN) == ["echo: one"])
        await fake.cut()
        await fake.bring(said("two"))
        await fake.until(lambda fake: fake.texts(ANN) == ["echo: one", "echo: two"] and not fake.pending)
    assert fake.connected == 2


async def test_a_connection_that_falls_silent_is_given_up_and_another_one_opened(
    held: Pipeline, fake: FakeFeishu
) -> None:
    fake.config["PingInterval"] = 1
    fake.is_silent = True
    async with listening(held, pong_seconds=0.2):
        await fake.until(lambda fake: fake.connected == 2)


async def test_what_is_in_the_spool_is_settled_while_another_machine_leads(held: Pipeline, fake: FakeFeishu) -> None:
    left = Spool(spool_path(held.settings.data_dir, "feishu", APP_ID))
    await left.keep([Events(block(fake)).event(said("left by another process"))])
    left.close()
    settings, name = held.settings, keys.listener("feishu", APP_ID)
    async with Leader(held.servers, name, ttl=settings.lease, every=settings.heartbeat) as elsewhere:
        await elsewhere.leads.wait()
        async with listening(held), working(held):
            await fake.until(lambda fake: fake.texts(ANN) == ["echo: left by another process"])
    assert fake.connected == 0


async def test_an_endpoint_that_is_busy_is_asked_again(held: Pipeline, fake: FakeFeishu) -> None:
    fake.opens += [1, 1000040343]
    async with listening(held):
        await fake.until(lambda fake: fake.connected == 1)
    assert len(fake.of("/endpoint")) == 3


async def test_a_refused_app_is_told_to_the_log(make_settings: MakeSettings, fake: FakeFeishu) -> None:
    fake.opens.append(514)
    async with open_pipeline(make_settings(feishu=block(fake))) as pipe:
        with capture_logs() as lines:
            async with listening(pipe):
                await fake.until(lambda fake: not fake.opens)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["not listening"]


async def test_a_pressed_button_and_a_frame_that_is_none_hold_up_nothing(held: Pipeline, fake: FakeFeishu) -> None:
    async with listening(held), working(held):
        await fake.until(lambda fake: fake.sockets)
        await fake.bring({"action": {"value": {}}}, kind="card")
        await fake.sockets[0].send_bytes(b"\xff\xff")
        await fake.sockets[0].send_str("text")
        await fake.bring_raw(b"{")
        await fake.bring(said("still here"))
        await fake.until(lambda fake: fake.texts(ANN) == ["echo: still here"] and not fake.pending)
    rows = await ask(held.store, "SELECT reason FROM dead")
    assert [row["reason"] for row in rows] == ["malformed"] * 3


async def test_what_the_agent_hears_is_what_was_said(pipe: Pipeline, fake: FakeFeishu) -> None:
    heard: list[str] = []

    def listen(text: str) -> str:
        heard.append(text)
        return "ok"

    async with answering(pipe, fake, FunctionAgent(listen)) as hook:
        await hook.bring(payload("post") | {}, said("你好"))
        await fake.until(lambda fake: len(fake.shown) == 2)
    assert any(text.endswith("ask @Bob[SMILE]\n---") for text in heard) and "你好" in heard

"""WhatsApp from a signed request to the sent reply: real Valkey, a real worker, and a local Cloud API."""

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

from shared.agent.turn import Result, Turn
from shared.messages import Entry, Media, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.whatsapp import WhatsAppSettings
from shared.settings import Settings
from tests.store.books import ask, write
from tests.support.door import Door, open_door
from tests.support.servers import Databases
from tests.support.whatsapp import (
    NUMBER,
    OTHER_NUMBER,
    TOKEN,
    FakeWhatsApp,
    Refused,
    Trouble,
    a_message,
    notification,
    open_whatsapp,
    signature,
)
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent, echo

PAYLOADS = Path(__file__).parents[1] / "payloads/whatsapp"
SECRET, NEW_SECRET, VERIFY = "canary-app-secret-1", "canary-app-secret-2", "canary-verify-token"
ANN, BOB, GROUP = "15552223333", "15554445555", "Y2FwaV9ncm91cDox"
MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeWhatsApp]:
    async with open_whatsapp() as opened:
        yield opened


def block(fake: FakeWhatsApp, **changes: Any) -> WhatsAppSettings:
    values = {
        "access_token": SecretStr(TOKEN),
        "app_secret": (SecretStr(SECRET), SecretStr(NEW_SECRET)),
        "verify_token": SecretStr(VERIFY),
        "phone_number_id": NUMBER,
        "further_phone_number_ids": (OTHER_NUMBER,),
        "api_url": fake.url,
        "allowed_users": (ANN, BOB, "US.1349"),
        "rate_limit_seconds": 0.5,
    }
    return WhatsAppSettings(**{**values, **changes})


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeWhatsApp) -> Settings:
    return make_settings(whatsapp=block(fake))


@dataclass
class Hook:
    """Meta's side of the webhook."""

    door: Door
    fake: FakeWhatsApp

    async def post(self, body: Any, secret: str = SECRET) -> httpx.Response:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"X-Hub-Signature-256": signature(raw, secret)}
        return await self.door.client.post("/webhooks/whatsapp", content=raw, headers=headers)

    async def bring(self, *bodies: Any) -> None:
        for body in bodies:
            response = await self.post(body)
            assert (response.status_code, response.content) == (200, b"")

    async def say(self, *texts: str, **changes: Any) -> None:
        await self.bring(*(notification(a_message(text, **changes)) for text in texts))

    async def nothing_more(self) -> None:
        """What is brought now is answered, and nothing before it was."""
        before = len(self.fake.sends)
        await self.say("the end")
        await self.fake.until(lambda fake: "echo: the end" in fake.texts(ANN))
        assert len(self.fake.sends) == before + 1


@pytest.fixture
async def hook(pipe: Pipeline, fake: FakeWhatsApp) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe):
        yield Hook(door, fake)


@asynccontextmanager
async def answering(pipe: Pipeline, fake: FakeWhatsApp, agent: Agent | Answers) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe, agent):
        yield Hook(door, fake)


def saying(*replies: Reply) -> Agent | Answers:
    class Saying:
        async def run(self, turn: Turn) -> Result:
            return Result((Entry("assistant", "said"),), replies)

    return Saying()


def payload(name: str) -> bytes:
    return (PAYLOADS / f"{name}.json").read_bytes()


# From the request to the reply.


PERSON = {"recipient_type": "individual", "to": ANN}
HIDDEN = {"recipient_type": "individual", "recipient": "US.1349"}
IN_GROUP = {"recipient_type": "group", "to": GROUP}
ANSWERED: list[tuple[str, dict[str, Any], str]] = [
    ("text", PERSON, "echo: hello"),
    ("text_not_ascii", PERSON, "echo: café 🙂"),
    ("reply_to_the_bot", PERSON, "echo: why?"),
    ("button_reply", PERSON, "echo: Tomorrow"),
    ("image_with_caption", PERSON, "echo: what is this?"),
    ("hidden_number", HIDDEN, "echo: hi"),
    ("group_reply_to_the_bot", {**IN_GROUP, "context": {"message_id": "wamid.GROUP2="}}, "echo: go on"),
    ("group_mention", {**IN_GROUP, "context": {"message_id": "wamid.GROUP3="}}, "echo: status?"),
]
LEFT = [
    "group_unaddressed",
    "group_mention_of_a_longer_number",
    "reaction",
    "edit",
    "revoke",
    "unsupported",
    "own_message",
    "message_echo",
    "another_number",
    "changed_identity",
    "status_delivered",
]


async def test_a_message_is_answered_where_it_was_said(
    hook: Hook, fake: FakeWhatsApp, subtests: pytest.Subtests
) -> None:
    for name, place, answer in ANSWERED:
        with subtests.test(name):
            await hook.bring(payload(name))
            await fake.until(lambda fake: fake.shown)
            [sent] = fake.sends
            token = sent.pop("biz_opaque_callback_data")
            assert token.startswith("keyturn-")
            text = {"type": "text", "text": {"body": answer, "preview_url": False}}
            assert sent == {"messaging_product": "whatsapp", **place, **text}
        fake.forget()
    await hook.nothing_more()


async def test_what_is_not_for_us_is_taken_and_not_answered(hook: Hook, subtests: pytest.Subtests) -> None:
    for name in LEFT:
        with subtests.test(name):
            await hook.bring(payload(name))
            assert not any((await hook.door.stored()).values())
    await hook.nothing_more()


async def test_a_request_with_messages_of_several_people_and_numbers_is_settled_message_by_message(
    hook: Hook, fake: FakeWhatsApp
) -> None:
    first = notification(a_message("a"), {"id": "wamid.S=", "status": "read"}, a_message("b", BOB))
    poison, other = notification(a_message("x", text=5)), notification(a_message("c"), number=OTHER_NUMBER)
    await hook.bring({**first, "entry": [*first["entry"], *poison["entry"], 7, *other["entry"]]})
    await fake.until(lambda fake: len(fake.texts(ANN)) == 2 and fake.texts(BOB))
    assert sorted(fake.texts(ANN)) == ["echo: a", "echo: c"] and fake.texts(BOB) == ["echo: b"]
    numbers = {call.fields["text"]["body"]: call.number for call in fake.calls if "text" in call.fields}
    assert numbers == {"echo: a": NUMBER, "echo: b": NUMBER, "echo: c": OTHER_NUMBER}
    assert (await hook.door.stored())["dead"] == 2


async def test_a_message_that_comes_twice_is_answered_once(hook: Hook, fake: FakeWhatsApp) -> None:
    await hook.bring(payload("text"), payload("text"))
    await fake.until(lambda fake: fake.texts(ANN))
    await hook.bring(payload("text"))
    await hook.nothing_more()
    assert fake.texts(ANN) == ["echo: hello", "echo: the end"]


async def test_a_full_chat_holds_up_nobody_else_in_the_same_request(
    make_settings: MakeSettings, fake: FakeWhatsApp
) -> None:
    async with open_pipeline(make_settings(whatsapp=block(fake), mailbox_limit=1)) as pipe, open_door(pipe) as door:
        hook = Hook(door, fake)
        await hook.bring(notification(a_message("one"), a_message("refused"), a_message("other", BOB)))
        rows = await ask(pipe.store, "SELECT payload FROM inbox")
        assert sorted(orjson.loads(row["payload"])["inbound"]["text"] for row in rows) == ["one", "other"]
        [letter] = await pipe.store.dead.all(state="open", limit=10)
        assert letter["reason"] == "mailbox full"


async def test_a_stranger_is_turned_away_and_the_log_says_whom_one_could_allow(hook: Hook) -> None:
    await hook.say("let me in", person="15556667777")
    assert {table for table, rows in (await hook.door.stored()).items() if rows} == {"outbox"}  # the pairing code
    [line] = hook.door.lines_at("warning")
    assert (line["event"], line["user"]) == ("stranger turned away", "15556667777")


async def test_a_message_for_a_number_that_is_not_ours_is_named_in_the_log(hook: Hook) -> None:
    await hook.bring(payload("another_number"))
    [line] = hook.door.lines_at("warning")
    assert line["phone_number_id"] == "999"


async def test_whoever_gets_a_number_that_somebody_gave_up_does_not_enter_their_conversation(
    make_settings: MakeSettings, fake: FakeWhatsApp
) -> None:
    settings = make_settings(whatsapp=block(fake, allowed_users=(ANN, "15557778888")))
    async with open_pipeline(settings) as pipe, answering(pipe, fake, FunctionAgent(echo)) as hook:
        await hook.say("before")
        await fake.until(lambda fake: fake.texts(ANN))
        await hook.bring(payload("changed_number"))
        await hook.say("after", person="15557778888")
        await fake.until(lambda fake: fake.texts("15557778888"))
        await hook.say("somebody else", person=ANN)
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
        old, new = [await pipe.store.sessions.find(f"agent:main:whatsapp:dm:{id}") for id in (ANN, "15557778888")]
        assert old is not None and new is not None and old["id"] != new["id"]
        rows = await pipe.store.sessions.messages(new["id"], 10)
    assert [row["text"] for row in rows] == ["after", "echo: after"]


# The webhook's door.


async def test_whatsapp_is_told_the_challenge_if_it_knows_the_verify_token(hook: Hook) -> None:
    good = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "1158201444"}
    answer = await hook.door.client.get("/webhooks/whatsapp", params=good)
    assert (answer.status_code, answer.text) == (200, "1158201444")
    assert answer.headers["content-type"].startswith("text/plain")
    wrong: list[Any] = [
        {},
        {**good, "hub.verify_token": "wrong"},
        {**good, "hub.verify_token": ""},
        {**good, "hub.verify_token": "\ud800".encode("utf-8", "replace").decode()},
        {**good, "hub.mode": "unsubscribe"},
        {**good, "hub.challenge": ""},
        {**good, "hub.challenge": "x" * 2000},
        [*good.items(), ("hub.verify_token", VERIFY)],
    ]
    for params in wrong:
        answer = await hook.door.client.get("/webhooks/whatsapp", params=params)
        assert (answer.status_code, answer.json()) == (403, {"error": "not authorised"})
    assert VERIFY not in repr(hook.door.lines)


async def test_only_what_metas_app_signed_is_read_and_both_secrets_count_while_they_rotate(
    pipe: Pipeline, fake: FakeWhatsApp, subtests: pytest.Subtests
) -> None:
    body = payload("text")
    good = signature(body, SECRET)
    wrong = ["", "sha256=", good.removeprefix("sha256="), good.upper(), good[:-1], good + "0", "sha1=" + good[7:]]
    wrong += [signature(body, "other"), signature(body + b" ", SECRET), signature(b"", SECRET)]
    async with open_door(pipe) as door:
        for given in wrong:
            with subtests.test(given):
                headers = [(b"x-hub-signature-256", given.encode())]
                response = await door.client.post("/webhooks/whatsapp", content=body, headers=headers)
                assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
                await door.refused(401)
        for secret in (SECRET, NEW_SECRET):
            assert (await Hook(door, fake).post(body, secret)).status_code == 200
        assert (await door.stored())["inbox"] == 1


async def test_a_signed_request_that_cannot_be_understood_is_taken_and_recorded(hook: Hook) -> None:
    await hook.bring(
        b"{", b"[]", notification(a_message("x", text=5)), {"object": "whatsapp_business_account", "entry": 5}
    )
    assert (await hook.door.stored())["dead"] == 4
    await hook.nothing_more()


async def test_whatsapp_without_its_secrets_is_not_there(make_settings: MakeSettings, fake: FakeWhatsApp) -> None:
    for off in (WhatsAppSettings(), block(fake, enabled=False)):
        async with open_pipeline(make_settings(whatsapp=off)) as pipe, open_door(pipe) as door:
            assert (await Hook(door, fake).post(payload("text"))).status_code == 404
            assert (await door.client.get("/webhooks/whatsapp")).status_code == 404


# What is sent.


async def test_markdown_is_sent_with_whatsapps_marks_and_long_replies_in_parts(
    pipe: Pipeline, fake: FakeWhatsApp
) -> None:
    long = "\n".join(f"line {n} 🙂 of **many**" for n in range(400))
    async with answering(pipe, fake, saying(Reply("# Plan\n**Now** [docs](https://x.org)"), Reply(long))) as hook:
        await hook.say("go")
        await fake.until(lambda fake: fake.texts(ANN) and fake.texts(ANN)[-1].endswith("(3/3)"))
    first, *parts = fake.texts(ANN)
    assert first == "*Plan*\n*Now* docs (https://x.org)"
    lines = [line for part in parts for line in part.rsplit(" (", 1)[0].split("\n")]
    assert lines == [f"line {n} 🙂 of *many*" for n in range(400)]


async def test_only_the_first_part_of_an_answer_in_a_group_points_at_what_it_answers(
    pipe: Pipeline, fake: FakeWhatsApp
) -> None:
    async with answering(pipe, fake, saying(Reply("word " * 2000))) as hook:
        await hook.bring(payload("group_mention"))
        await fake.until(lambda fake: len(fake.texts(GROUP)) == 3)
    assert ["context" in sent for sent in fake.sends] == [True, False, False]


async def test_files_are_sent_by_address_or_by_the_id_under_which_whatsapp_keeps_them(
    pipe: Pipeline, fake: FakeWhatsApp
) -> None:
    files = (
        Media("https://x/a.png", "image/png"),
        Media("wa-media:77", "audio/ogg; codecs=opus"),
        Media("https://x/r.pdf", "application/pdf", "report.pdf"),
        Media("https://x/a.gif", "image/gif"),
    )
    async with answering(pipe, fake, saying(Reply("here", files))) as hook:
        await hook.say("go")
        await fake.until(lambda fake: len(fake.shown.get(ANN, ())) == 5)
    assert [sent[sent["type"]] for sent in fake.sends[1:]] == [
        {"link": "https://x/a.png"},
        {"id": "77"},
        {"link": "https://x/r.pdf", "filename": "report.pdf"},
        {"link": "https://x/a.gif"},
    ]
    assert [sent["type"] for sent in fake.sends] == ["text", "image", "audio", "document", "document"]


async def test_while_a_turn_runs_the_message_is_shown_as_read_and_an_answer_as_coming(
    pipe: Pipeline, fake: FakeWhatsApp
) -> None:
    class Waiting:
        async def run(self, turn: Turn) -> Result:
            await fake.until(lambda fake: fake.reads)
            return Result((Entry("assistant", "now"),), (Reply("now"),))

    async with answering(pipe, fake, Waiting()) as hook:
        await hook.bring(payload("text"))
        await fake.until(lambda fake: fake.texts(ANN))
    read = {"status": "read", "message_id": "wamid.TEXT=", "typing_indicator": {"type": "text"}}
    assert fake.reads == [{"messaging_product": "whatsapp", **read}]


async def test_after_too_many_messages_the_chat_waits_and_stays_in_order(hook: Hook, fake: FakeWhatsApp) -> None:
    fake.trouble.append(Refused(400, 131056))
    await hook.say("a", "b")
    await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
    assert fake.texts(ANN) == ["echo: a", "echo: b"]
    times = [call.at for call in fake.calls if "text" in call.fields]
    assert times[1] - times[0] > 0.45
    assert await hook.door.pipe.store.dead.all(state="open", limit=10) == []


async def test_trouble_that_passes_is_tried_again(hook: Hook, fake: FakeWhatsApp) -> None:
    fake.trouble.extend([Refused(500), Refused(400, 131000)])
    await hook.say("a")
    await fake.until(lambda fake: fake.texts(ANN))
    assert (fake.texts(ANN), len(fake.sends)) == (["echo: a"], 3)


async def test_a_reply_outside_the_24_hours_is_set_aside_with_the_reason(hook: Hook, fake: FakeWhatsApp) -> None:
    fake.closed.add(ANN)
    await hook.say("a")
    await hook.say("hi", person=BOB)
    await fake.until(lambda fake: fake.texts(BOB))
    [letter] = await _letters(hook.door.pipe, 1)
    assert (letter["kind"], letter["reason"]) == ("reply", "refused") and "24 hours" in letter["detail"]


async def test_while_the_token_is_refused_replies_wait(hook: Hook, fake: FakeWhatsApp) -> None:
    fake.trouble.append(Refused(401, 190))
    await hook.say("a")
    await hook.door.until(lambda: bool(hook.door.lines_at("error")))
    assert await hook.door.pipe.store.dead.all(state="open", limit=10) == []
    assert TOKEN not in repr(hook.door.lines)


@pytest.mark.parametrize("again", [True, False])
async def test_a_send_whose_answer_is_lost_is_repeated_only_if_the_policy_says_so(
    make_settings: MakeSettings, fake: FakeWhatsApp, again: bool
) -> None:
    fake.trouble.append(Trouble.CUT)
    settings = make_settings(whatsapp=block(fake), resend_ambiguous=again)
    async with open_pipeline(settings) as pipe, answering(pipe, fake, FunctionAgent(echo)) as hook:
        await hook.say("a", "b")
        await fake.until(lambda fake: "echo: b" in fake.texts(ANN))
        assert fake.texts(ANN) == ["echo: a"] * (2 if again else 1) + ["echo: b"]
        dead = await pipe.store.dead.all(state="open", limit=10)
        assert [letter["reason"] for letter in dead] == ([] if again else ["ambiguous"])


async def test_a_reply_that_whatsapp_took_and_could_not_deliver_becomes_a_dead_letter_once(
    hook: Hook, fake: FakeWhatsApp
) -> None:
    await hook.say("a")
    await fake.until(lambda fake: fake.shown)
    [shown] = fake.shown[ANN]
    status = a_failure(shown["id"], shown["biz_opaque_callback_data"])
    await hook.bring(notification(status), notification(status), payload("status_failed_of_another_program"))
    [letter] = await _letters(hook.door.pipe, 1)
    assert (letter["kind"], letter["reason"]) == ("reply", "undelivered") and "24 hours" in letter["detail"]
    [row] = await ask(hook.door.pipe.store, "SELECT id FROM outbox")
    assert letter["ref"] == str(row["id"])
    [closed] = await hook.door.pipe.store.closed_chats.page(after="", limit=10)
    assert closed.destination == f"to:whatsapp:{ANN}" and "24 hours" in closed.reason  # until the person writes
    assert len([line for line in hook.door.lines_at("error") if line["event"] == "reply not delivered"]) == 3


async def test_a_failure_that_is_told_again_leaves_a_chat_open_that_was_opened_since(
    hook: Hook, fake: FakeWhatsApp
) -> None:
    """Meta brings statuses again for days. Meanwhile the person may have written, and heard an answer."""
    closed_chats = hook.door.pipe.store.closed_chats
    await hook.say("a")
    await _until_sent(hook.door.pipe)
    [shown] = fake.shown[ANN]
    status = a_failure(shown["id"], shown["biz_opaque_callback_data"])
    await hook.bring(notification(status))
    assert await closed_chats.open(f"to:whatsapp:{ANN}")
    await hook.bring(notification(status))
    assert await closed_chats.count() == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "wamid.OFANOTHERDEPLOYMENT="},
        {"biz_opaque_callback_data": "keyturn-999999"},
        {"biz_opaque_callback_data": "keyturn-1", "id": "wamid.OFANOTHERDEPLOYMENT="},
    ],
)
async def test_a_failure_of_another_deployments_reply_does_not_touch_ours_with_the_same_number(
    hook: Hook, fake: FakeWhatsApp, changed: dict[str, str]
) -> None:
    """Staging and production count their parts from 1, and may have the same phone number."""
    await hook.say("a")
    await _until_sent(hook.door.pipe)
    [shown] = fake.shown[ANN]
    status = a_failure(shown["id"], shown["biz_opaque_callback_data"])
    await hook.bring(notification({**status, **changed}))
    assert await hook.door.pipe.store.dead.all(state="open", limit=10) == []
    await hook.bring(notification(status))
    assert len(await _letters(hook.door.pipe, 1)) == 1


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_failure_that_comes_before_the_receipt_is_written_is_known_by_the_parts_key(
    hook: Hook, fake: FakeWhatsApp, is_ours: bool
) -> None:
    pipe = hook.door.pipe
    await hook.say("a")
    await _until_sent(pipe)
    [shown] = fake.shown[ANN]
    await write(pipe.store, "UPDATE outbox SET receipt = NULL, state = 'sending'")
    token = shown["biz_opaque_callback_data"]
    await hook.bring(notification(a_failure(shown["id"], token if is_ours else f"{token[:-16]}{'0' * 16}")))
    assert len(await pipe.store.dead.all(state="open", limit=10)) == int(is_ours)


def a_failure(id: str, token: str) -> dict[str, Any]:
    about = {"timestamp": "1767225600", "recipient_id": ANN, "biz_opaque_callback_data": token}
    return {"id": id, "status": "failed", **about, "errors": [{"code": 131047, "title": "Re-engagement message"}]}


async def _until_sent(pipe: Pipeline) -> None:
    async with asyncio.timeout(90):
        while not await ask(pipe.store, "SELECT id FROM outbox WHERE state = 'sent'"):
            await asyncio.sleep(0.02)


async def _letters(pipe: Pipeline, count: int) -> list[Any]:
    async with asyncio.timeout(90):
        while len(found := await pipe.store.dead.all(state="open", limit=10)) < count:
            await asyncio.sleep(0.02)
    return found

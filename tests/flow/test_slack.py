"""Slack from raw request or websocket frame to sent reply: real Valkey, a real worker, and a local Slack."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson
import pytest
from pydantic import SecretStr
from slack_sdk.models.blocks import Block
from slack_sdk.web.async_client import AsyncWebClient

from producers.listening import Listener, listen_on
from producers.settling import FULL_NOTICE
from producers.slack.hearing import Hearing
from producers.slack.listen import CONNECTIONS, SocketMode
from producers.spool import Spool, spool_path
from shared.agent.turn import Result, Turn
from shared.errors import ConfigurationError, Denied, Unavailable
from shared.messages import Entry, Media, Reply, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.slack import FACTS, FILE_SCHEME, SlackSettings
from shared.platforms.slack_api import open_web_api
from shared.settings import Settings
from tests.store.books import ask
from tests.support.door import Door, open_door
from tests.support.servers import Databases
from tests.support.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    SIGNING_SECRET,
    FakeSlack,
    Refused,
    Trouble,
    open_slack,
    signed,
)
from tests.support.uploads import no_files
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.delivery.slack import SlackSender
from workers.media.incoming import FetchLimits

PAYLOADS = Path(__file__).parents[1] / "payloads/slack"
ANN, DIRECT, CHANNEL = "U01ANN", "D01ANN", "C01GEN"
MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with open_slack() as opened:
        yield opened


def block(fake: FakeSlack, **changes: Any) -> SlackSettings:
    values = {"bot_token": SecretStr(BOT_TOKEN), "api_url": fake.url, "allowed_users": (ANN,), **changes}
    return SlackSettings(**values)


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeSlack) -> Settings:
    return make_settings(slack=block(fake, signing_secret=(SecretStr(SIGNING_SECRET),)))


@dataclass
class Hook:
    """Slack's side of the webhook."""

    door: Door
    fake: FakeSlack

    async def post(self, payload: Any, secret: str = SIGNING_SECRET, **headers: str) -> httpx.Response:
        body = payload if isinstance(payload, bytes) else orjson.dumps(payload)
        about = {"content-type": "application/json", **signed(body, secret), **headers}
        return await self.door.client.post("/webhooks/slack", content=body, headers=about)

    async def post_form(self, fields: dict[str, Any]) -> httpx.Response:
        body = urlencode(fields).encode()
        about = {"content-type": "application/x-www-form-urlencoded", **signed(body)}
        return await self.door.client.post("/webhooks/slack", content=body, headers=about)

    async def bring(self, *payloads: Any) -> None:
        for payload in payloads:
            response = await self.post(payload)
            assert (response.status_code, response.content) == (200, b"")

    async def nothing_more(self) -> None:
        """What is brought now is answered, and nothing before it was."""
        before = len(self.fake.of("chat.postMessage"))
        await self.bring(said("the end"))
        await self.fake.until(lambda fake: "echo: the end" in fake.texts(DIRECT))
        assert len(self.fake.of("chat.postMessage")) == before + 1


@asynccontextmanager
async def answering(pipe: Pipeline, fake: FakeSlack, agent: Agent | Answers | None = None) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe, agent):
        yield Hook(door, fake)


@pytest.fixture
async def hook(pipe: Pipeline, fake: FakeSlack) -> AsyncIterator[Hook]:
    async with answering(pipe, fake) as opened:
        yield opened


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


_numbers = iter(range(1, 1_000_000))


def said(text: str, channel: str = DIRECT, **event: Any) -> dict[str, Any]:
    """Ann says something; in a channel, to the bot."""
    n = next(_numbers)
    words = text if channel.startswith("D") else f"<@U0BOT> {text}"
    kind = "im" if channel.startswith("D") else "channel"
    spoken = {"type": "message", "user": ANN, "text": words, "ts": f"1767229000.{n:06}", "channel": channel}
    return {"type": "event_callback", "event_id": f"Ev9{n}", "event": {**spoken, "channel_type": kind, **event}}


def unaddressed(text: str, channel: str) -> dict[str, Any]:
    fields = said(text, channel)
    return {**fields, "event": {**fields["event"], "text": text}}


def saying(*replies: Reply) -> Agent | Answers:
    class Saying:
        async def run(self, turn: Turn) -> Result:
            return Result((Entry("assistant", "said"),), replies)

    return Saying()


# From the payload to the reply.


ANSWERED = [
    ("direct", DIRECT, None, "echo: hello"),
    ("direct_thread", DIRECT, "1767225600.000100", "echo: and here?"),
    ("file_share", DIRECT, None, "echo: what is this?"),
    ("group_mention", "G01MANY", "1767225603.000100", "echo: who is here?"),
    ("channel_mention", CHANNEL, "1767225604.000100", "echo: status?"),
    ("private_channel_mention", "C03PRIV", "1767225609.000100", "echo: secret plans?"),
    ("app_mention_in_a_group", "C02MANY", "1767225605.000100", "echo: and you?"),
    ("thread_mention", CHANNEL, "1767225604.000100", "echo: go on"),
    ("thread_reply_to_the_bot", CHANNEL, "1767225500.000900", "echo: why?"),
]
LEFT = [
    "channel_unaddressed",
    "thread_reply_unaddressed",
    "edit",
    "deletion",
    "own_message",
    "other_bots_message",
    "other_apps_message",
    "slackbot",
    "channel_join",
    "member_joined",
    "reaction",
    "another_installation",
    "too_many_events",
]


async def test_a_message_is_answered_where_it_was_said(hook: Hook, fake: FakeSlack, subtests: pytest.Subtests) -> None:
    for name, channel, thread, answer in ANSWERED:
        with subtests.test(name):
            await hook.bring(payload(name))
            await fake.until(lambda fake: fake.shown)
            [sent] = fake.of("chat.postMessage")
            assert sent.pop("metadata")["event_type"] == "keyturn_part"
            place = {"channel": channel} | ({"thread_ts": thread} if thread else {})
            assert sent == {**place, "text": answer, "unfurl_links": False, "unfurl_media": False}
        fake.forget()
    await hook.nothing_more()


async def test_what_is_not_for_us_is_taken_and_not_answered(hook: Hook, subtests: pytest.Subtests) -> None:
    for name in LEFT:
        with subtests.test(name):
            await hook.bring(payload(name))
            assert not any((await hook.door.stored()).values())
    await hook.nothing_more()


async def test_a_mention_that_comes_as_two_events_and_again_is_answered_once(hook: Hook, fake: FakeSlack) -> None:
    """A repetition may be the first that arrives: its header says nothing."""
    first = await hook.post(
        payload("channel_mention"), **{"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_error"}
    )
    assert first.status_code == 200
    await fake.until(lambda fake: fake.texts(CHANNEL))
    await hook.bring(payload("channel_mention_as_app_mention"), payload("channel_mention"))
    await hook.nothing_more()
    assert fake.texts(CHANNEL) == ["echo: status?"]
    assert hook.door.lines_at("error") == []


async def test_a_thread_is_one_conversation_and_the_channel_beside_it_others(
    hook: Hook, fake: FakeSlack, pipe: Pipeline
) -> None:
    await hook.bring(payload("channel_mention"), payload("thread_mention"), said("apart", CHANNEL))
    await fake.until(lambda fake: len(fake.texts(CHANNEL)) == 3)
    session = await pipe.store.sessions.find("agent:main:slack:channel:C01GEN:s=T01TEAM:t=1767225604.000100")
    assert session is not None
    rows = await pipe.store.sessions.messages(session["id"], 10)
    assert [row["text"] for row in rows if row["role"] == "assistant"] == ["echo: status?", "echo: go on"]


async def test_without_threads_an_answer_stands_in_the_channel(make_settings: MakeSettings, fake: FakeSlack) -> None:
    flat = block(fake, signing_secret=(SecretStr(SIGNING_SECRET),), reply_in_thread=False, free_chats=("C03PRIV",))
    async with open_pipeline(make_settings(slack=flat)) as pipe, answering(pipe, fake) as hook:
        await hook.bring(payload("channel_mention"))
        await fake.until(lambda fake: fake.texts(CHANNEL))
        await hook.bring(unaddressed("no mention needed", "C03PRIV"))
        await fake.until(lambda fake: fake.texts("C03PRIV"))
    assert not any("thread_ts" in sent for sent in fake.of("chat.postMessage"))


async def test_a_file_reaches_the_agent(pipe: Pipeline, fake: FakeSlack) -> None:
    seen: list[Media] = []

    class Looking:
        async def run(self, turn: Turn) -> Result:
            seen.extend(media for inbound in turn.mail for media in inbound.media)
            return Result((Entry("assistant", "seen"),), (Reply("seen"),))

    async with answering(pipe, fake, Looking()) as hook:
        await hook.bring(payload("file_without_words"))
        await fake.until(lambda fake: fake.texts(DIRECT))
    [file] = seen
    assert (file.url.partition(":")[0], file.type, file.name) == ("blob", "image/png", "chart.png")


async def test_a_page_is_a_file_where_slack_says_so_and_else_the_token_lacks_a_right(fake: FakeSlack) -> None:
    fake.shown_as["F1"] = "text/html"
    async with open_web_api(block(fake)) as api:
        sender = SlackSender(api, no_files(FACTS), resend_unseen=False)
        file, limits = Media(f"{FILE_SCHEME}F1", None), FetchLimits(1_000_000, 60)
        fake.keep_file("F1", "page.html", "text/html", b"<html>ours</html>")
        async with sender.file(file, Source("slack", DIRECT, "dm"), limits) as taken:
            assert b"".join([chunk async for chunk in taken.chunks]) == b"<html>ours</html>"
        fake.keep_file("F1", "chart.png", "image/png", b"<html>sign in</html>")
        with pytest.raises(Denied, match="files:read"):
            async with sender.file(file, Source("slack", DIRECT, "dm"), limits):
                pass


async def test_names_are_asked_of_slack_once_and_kept_with_the_message(
    hook: Hook, fake: FakeSlack, pipe: Pipeline
) -> None:
    await hook.bring(payload("channel_mention"), said("again", CHANNEL))
    [first, second] = await ask(pipe.store, "SELECT payload FROM inbox ORDER BY received_at")
    for row in (first, second):
        source = orjson.loads(row["payload"])["inbound"]["source"]
        assert (source["user_name"], source["chat_name"], source["topic"]) == ("Ann", "general", "about general")
    assert (len(fake.of("users.info")), len(fake.of("conversations.info"))) == (1, 1)


async def test_a_name_that_slack_does_not_tell_holds_up_nothing(hook: Hook, fake: FakeSlack) -> None:
    fake.scopes_missing |= {"users.info", "conversations.info"}
    await hook.bring(payload("channel_mention"))
    await fake.until(lambda fake: fake.texts(CHANNEL) == ["echo: status?"])


async def test_a_mention_waits_for_the_kind_of_its_chat_so_that_a_group_has_one_conversation(
    hook: Hook, fake: FakeSlack, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack brings it again. A `message` event says the kind itself, a mention does not."""
    monkeypatch.setattr("producers.slack.directory.ASK_AGAIN_SECONDS", 0.0)
    mention = said("first", "C02MANY", type="app_mention")
    del mention["event"]["channel_type"]
    fake.failing["conversations.info"] = Refused("internal_error")
    response = await hook.post(mention)
    assert (response.status_code, "retry-after" in response.headers) == (503, True)
    assert not any((await hook.door.stored()).values())
    fake.failing.clear()
    await hook.bring(mention, said("second", "C02MANY", channel_type="mpim", thread_ts=mention["event"]["ts"]))
    await fake.until(lambda fake: fake.texts("C02MANY") == ["echo: first", "echo: second"])
    [row] = await ask(pipe.store, "SELECT DISTINCT session_key FROM inbox")
    assert row["session_key"].startswith("agent:main:slack:group:C02MANY")


async def test_a_slash_command_reaches_the_commands_and_is_answered_in_its_channel(hook: Hook, fake: FakeSlack) -> None:
    response = await hook.post_form(payload("slash_command"))
    assert (response.status_code, response.content) == (200, b"")
    await fake.until(lambda fake: fake.texts(CHANNEL))
    assert not fake.texts(CHANNEL)[0].startswith("echo") and "thread_ts" not in fake.of("chat.postMessage")[0]
    await hook.post_form(payload("slash_command"))
    await hook.post_form(payload("slash_command_with_words"))
    await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: what is 1 < 2?"])
    assert len(fake.texts(CHANNEL)) == 1


async def test_a_pressed_button_says_its_value_under_its_message(hook: Hook, fake: FakeSlack) -> None:
    for name in ("button", "button_without_value", "selected_option", "button_of_a_view", "view_submission"):
        response = await hook.post_form({"payload": orjson.dumps(payload(name)).decode()})
        assert (response.status_code, response.content) == (200, b"")
    await fake.until(lambda fake: fake.texts(CHANNEL) == ["echo: yes, go on"])
    assert fake.of("chat.postMessage")[0]["thread_ts"] == "1767225604.000100"
    await hook.nothing_more()


async def test_a_stranger_is_turned_away_and_the_log_says_whom_one_could_allow(hook: Hook) -> None:
    await hook.bring(said("let me in", user="U66SPY"))
    assert {table for table, rows in (await hook.door.stored()).items() if rows} == {"outbox"}  # the pairing code
    [line] = hook.door.lines_at("warning")
    assert (line["event"], line["user"]) == ("stranger turned away", "U66SPY")


async def test_a_message_for_a_full_chat_is_set_aside_and_slack_is_not_refused(
    make_settings: MakeSettings, fake: FakeSlack
) -> None:
    """Slack repeats three times only, and turns a receiver off that refuses too often."""
    small = make_settings(slack=block(fake, signing_secret=(SecretStr(SIGNING_SECRET),)), mailbox_limit=2)
    async with open_pipeline(small) as pipe:
        async with open_door(pipe) as door:
            await Hook(door, fake).bring(*(said(str(n)) for n in range(3)))
            assert (await door.stored())["dead"] == 1
        async with working(pipe):
            await fake.until(lambda fake: len(fake.texts(DIRECT)) == 3)
    assert sorted(fake.texts(DIRECT)) == sorted([FULL_NOTICE, "echo: 0", "echo: 1"])


# The webhook's door.


async def test_slacks_handshake_is_answered_to_whoever_signs_it(hook: Hook) -> None:
    response = await hook.post(payload("url_verification"))
    assert (response.status_code, response.text) == (200, payload("url_verification")["challenge"])
    assert response.headers["content-type"].startswith("text/plain")
    assert (await hook.post(payload("url_verification"), "0" * 32)).status_code == 401
    assert not any((await hook.door.stored()).values())


async def test_what_slack_did_not_sign_is_not_read(pipe: Pipeline, subtests: pytest.Subtests) -> None:
    body = b"not even json"
    good = signed(body)
    name, at = "X-Slack-Signature", "X-Slack-Request-Timestamp"
    wrong: list[list[tuple[str, str]]] = [
        [],
        [(name, good[name])],
        [(at, good[at])],
        [*good.items(), (name, good[name])],
    ]
    wrong += [list(headers.items()) for headers in (signed(body, "0" * 32), signed(b"other"), signed(body, ahead=-400))]
    wrong += [[(at, good[at]), (name, value)] for value in ("", "v0=", good[name][3:], good[name] + "0", "v0=\xff")]
    async with open_door(pipe) as door:
        for headers in wrong:
            with subtests.test(repr(headers)):
                response = await door.request("POST", "/webhooks/slack", headers, body)
                assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
                await door.refused(401)


async def test_what_cannot_be_understood_is_taken_and_recorded(hook: Hook) -> None:
    await hook.bring(b"{", b"[]", {"type": 5}, {**said("x"), "event": {"type": "message", "user": 5}})
    form = b"payload=%7B"
    about = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", **signed(form)}
    assert (await hook.door.client.post("/webhooks/slack", content=form, headers=about)).status_code == 200
    assert (await hook.door.stored())["dead"] == 5
    await hook.nothing_more()


async def test_a_webhook_without_its_secret_is_not_there(make_settings: MakeSettings, fake: FakeSlack) -> None:
    async with open_pipeline(make_settings(slack=block(fake))) as pipe, open_door(pipe) as door:
        assert (await Hook(door, fake).post(said("x"))).status_code == 404


async def test_until_slack_says_who_we_are_it_keeps_its_events(make_settings: MakeSettings, fake: FakeSlack) -> None:
    secret = (SecretStr(SIGNING_SECRET),)
    away = block(fake, signing_secret=secret, api_url="http://127.0.0.1:9/api")
    wrong = block(fake, signing_secret=secret, bot_token=SecretStr("xoxb-other"))
    for slack_block in (away, wrong):
        async with open_pipeline(make_settings(slack=slack_block)) as pipe, open_door(pipe) as door:
            response = await Hook(door, fake).post(said("x"))
            assert (response.status_code, "retry-after" in response.headers) == (503, True)
            assert await door.nothing_stored()


# What is sent.


async def test_markdown_is_sent_as_mrkdwn_and_calls_no_channel(pipe: Pipeline, fake: FakeSlack) -> None:
    text = "# Plan\n**Now** run `a < b` & see [docs](https://x.org/?a=1&b=2), <@U02BOB>. <!channel>\n```py\na < b\n```"
    async with answering(pipe, fake, saying(Reply(text))) as hook:
        await hook.bring(said("go"))
        await fake.until(lambda fake: fake.texts(DIRECT))
    assert fake.of("chat.postMessage")[0]["text"] == (
        "*Plan*\n*Now* run `a &lt; b` &amp; see <https://x.org/?a=1&amp;b=2|docs>, <@U02BOB>. &lt;!channel&gt;\n"
        "```\na &lt; b\n```"
    )


async def test_a_form_that_slack_refuses_goes_out_as_plain_text(pipe: Pipeline, fake: FakeSlack) -> None:
    fake.trouble.append(Refused("invalid_blocks"))
    async with answering(pipe, fake, saying(Reply("**bold** <b>"))) as hook:
        await hook.bring(said("go"))
        await fake.until(lambda fake: fake.texts(DIRECT))
    assert fake.texts(DIRECT) == ["**bold** <b>"]
    assert fake.of("chat.postMessage")[1]["mrkdwn"] is False


async def test_a_long_reply_is_sent_in_parts_each_with_its_receipt(pipe: Pipeline, fake: FakeSlack) -> None:
    lines = [f"line {n} 🙂 of <many> & more" for n in range(500)]
    async with answering(pipe, fake, saying(Reply("\n".join(lines)), Reply("and done"))) as hook:
        await hook.bring(payload("channel_mention"))
        await fake.until(lambda fake: "and done" in fake.texts(CHANNEL))
        await _until_sent(pipe)
        rows = await ask(pipe.store, "SELECT receipt FROM outbox ORDER BY id")
    *texts, _ = fake.texts(CHANNEL)
    assert all(len(sent["text"].encode("utf-16-le")) <= 8000 for sent in fake.of("chat.postMessage"))
    assert [line for text in texts for line in text.rsplit(" (", 1)[0].split("\n")] == lines
    assert [row["receipt"] for row in rows] == [f"{CHANNEL}:{message['ts']}" for message in fake.shown[CHANNEL]]
    assert {sent["thread_ts"] for sent in fake.of("chat.postMessage")} == {"1767225604.000100"}


async def _until_sent(pipe: Pipeline) -> None:
    async with asyncio.timeout(90):
        while any(row["state"] != "sent" for row in await ask(pipe.store, "SELECT state FROM outbox")):
            await asyncio.sleep(0.02)


async def test_a_message_of_ours_is_changed_later_by_its_receipt(pipe: Pipeline, fake: FakeSlack) -> None:
    receipts: list[str] = []

    class Drafting:
        """Says something, then changes it: what it said is known by its receipt."""

        async def run(self, turn: Turn) -> Result:
            if turn.mail[-1].text == "begin":
                return Result((Entry("assistant", "draft"),), (Reply("draft"),))
            return Result((Entry("assistant", "final"),), (Reply("**final**", edits=receipts[0]),))

    async with answering(pipe, fake, Drafting()) as hook:
        await hook.bring(said("begin"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["draft"])
        receipts.append(f"{DIRECT}:{fake.shown[DIRECT][0]['ts']}")
        fake.trouble.append(Trouble.CUT)  # changed, and nobody hears of it: the change is made again
        await hook.bring(said("end"))
        await fake.until(lambda fake: len(fake.of("chat.update")) == 2)
        assert fake.texts(DIRECT) == ["*final*"]
        fake.shown.clear()  # deleted by somebody: it cannot be changed, and is sent anew
        await hook.bring(said("end"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["*final*"])
    assert (len(fake.of("chat.update")), len(fake.of("chat.postMessage"))) == (3, 2)


async def test_files_are_sent_as_pictures_or_links(pipe: Pipeline, fake: FakeSlack) -> None:
    files = (
        Media("https://x.org/a.png", "image/png", "a.png"),
        Media("https://x.org/a.pdf?b=1&c=2", "application/pdf", "report.pdf"),
        Media("slack-file:F01PIC", "image/png", "chart.png"),
        Media("https://x.org/broken.png", "image/png"),
    )
    async with answering(pipe, fake, saying(Reply("here", files))) as hook:
        fake.trouble.extend([None, None, None, None, Refused("invalid_blocks")])
        await hook.bring(said("go"))
        await fake.until(lambda fake: len(fake.shown.get(DIRECT, ())) == 5)
    _, picture, report, ours, broken, again = fake.of("chat.postMessage")
    assert picture["blocks"] == [{"type": "image", "image_url": "https://x.org/a.png", "alt_text": "a.png"}]
    assert report["text"] == "<https://x.org/a.pdf?b=1&amp;c=2|report.pdf>" and "blocks" not in report
    assert ours["text"] == "<https://team.slack.com/files/U01ANN/F01PIC/chart.png|chart.png>"
    assert "blocks" in broken and "blocks" not in again and again["text"] == "<https://x.org/broken.png|file>"


@pytest.mark.parametrize("refusal", [Refused("ratelimited", 429, 1), Refused("rate_limited", 200, 1)])
async def test_a_channel_waits_as_long_as_slack_says(hook: Hook, fake: FakeSlack, refusal: Refused) -> None:
    fake.trouble.append(refusal)
    await hook.bring(said("a"), said("b"))
    await fake.until(lambda fake: len(fake.texts(DIRECT)) == 2)
    assert fake.texts(DIRECT) == ["echo: a", "echo: b"]  # in order, although the first had to wait
    times = [call.at for call in fake.calls if call.method == "chat.postMessage"]
    assert times[1] - times[0] > 0.9
    assert fake.of("conversations.history") == []  # it was not taken: there is nothing to look for


async def test_a_failure_that_passes_is_tried_again(hook: Hook, fake: FakeSlack) -> None:
    fake.trouble.extend([Trouble.PAGE, Refused("internal_error"), Refused("service_unavailable"), Refused("x", 500)])
    await hook.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DIRECT))
    assert (fake.texts(DIRECT), len(fake.of("chat.postMessage"))) == (["echo: a"], 5)


REFUSALS = [
    "channel_not_found",
    "not_in_channel",
    "is_archived",
    "restricted_action",
    "msg_too_long",
    "no_text",
    "unheard_of",
]


@pytest.mark.parametrize("error", REFUSALS)
async def test_what_slack_refuses_for_good_is_set_aside_and_holds_up_nothing(
    hook: Hook, fake: FakeSlack, pipe: Pipeline, error: str
) -> None:
    fake.trouble.append(Refused(error))
    await hook.bring(said("a"), said("b"))
    await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: b"])
    [letter] = await pipe.store.dead.all(state="open", limit=10)
    assert (letter["kind"], letter["reason"], letter["detail"]) == ("reply", "refused", f"Slack: {error}")


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "missing_scope", "account_inactive"])
async def test_while_the_token_is_refused_replies_wait(pipe: Pipeline, fake: FakeSlack, error: str) -> None:
    """Not buried: somebody will put the right token in."""
    fake.trouble.append(Refused(error))
    async with answering(pipe, fake) as hook:
        await hook.bring(said("a"))
        await hook.door.until(lambda: bool(hook.door.lines_at("error")))
        async with asyncio.timeout(90):
            while not (parts := await pipe.store.outbox.open_parts(f"to:slack:{DIRECT}", 1)) or parts[0].sending:
                await asyncio.sleep(0.02)
    assert await pipe.store.dead.all(state="open", limit=10) == []


@pytest.mark.parametrize("channel", [DIRECT, CHANNEL])
@pytest.mark.parametrize("again", [True, False])
async def test_M6_a_send_whose_answer_is_lost_is_found_and_not_repeated(
    make_settings: MakeSettings, fake: FakeSlack, again: bool, channel: str
) -> None:
    fake.trouble.append(Trouble.CUT)
    slack_block = block(fake, signing_secret=(SecretStr(SIGNING_SECRET),))
    async with (
        open_pipeline(make_settings(slack=slack_block, resend_ambiguous=again)) as pipe,
        answering(pipe, fake) as hook,
    ):
        await hook.bring(said("a", channel))
        await fake.until(lambda fake: fake.of("conversations.history") or fake.of("conversations.replies"))
        await _until_sent(pipe)
        [row] = await ask(pipe.store, "SELECT receipt, ambiguous FROM outbox")
    assert (fake.texts(channel), row["ambiguous"]) == (["echo: a"], 1)
    assert row["receipt"] == f"{channel}:{fake.shown[channel][0]['ts']}"


@pytest.mark.parametrize("again", [True, False])
async def test_where_we_may_not_look_for_a_send_the_policy_decides(
    make_settings: MakeSettings, fake: FakeSlack, again: bool
) -> None:
    fake.trouble.append(Trouble.CUT)
    fake.scopes_missing.add("conversations.history")
    slack_block = block(fake, signing_secret=(SecretStr(SIGNING_SECRET),))
    async with (
        open_pipeline(make_settings(slack=slack_block, resend_ambiguous=again)) as pipe,
        answering(pipe, fake) as hook,
    ):
        await hook.bring(said("a"), said("b"))
        await fake.until(lambda fake: "echo: b" in fake.texts(DIRECT))
        assert fake.texts(DIRECT) == ["echo: a"] * (2 if again else 1) + ["echo: b"]
        dead = await pipe.store.dead.all(state="open", limit=10)
        assert [letter["reason"] for letter in dead] == ([] if again else ["refused"])


async def test_tokens_and_secrets_are_in_no_line_and_no_record(
    make_settings: MakeSettings, fake: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    both = block(fake, signing_secret=(SecretStr(SIGNING_SECRET),), app_token=SecretStr(APP_TOKEN))
    fake.trouble.extend([Trouble.PAGE, Refused("no_text"), Trouble.CUT])
    fake.opens.append(Refused("internal_error"))
    with caplog.at_level(logging.DEBUG):
        async with open_pipeline(make_settings(slack=both)) as pipe, answering(pipe, fake) as hook, listening(pipe):
            await hook.post(said("x"), "0" * 32)
            await hook.bring(said("a"), said("b"))
            await fake.bring(said("c"))
            await fake.until(lambda fake: "echo: c" in fake.texts(DIRECT))
    ours = [record for record in caplog.records if not record.name.startswith("aiohttp.server")]
    text = repr([(record.getMessage(), record.exc_text) for record in ours]) + repr(hook.door.lines)
    assert "chat.postMessage" in text
    for canary in (BOT_TOKEN, APP_TOKEN, SIGNING_SECRET, "canary7f3a9c"):
        assert canary not in text


# Socket Mode.


@asynccontextmanager
async def listening(pipe: Pipeline, silence_seconds: float = 20.0) -> AsyncIterator[None]:
    """A listener, until the block ends."""
    stopping = asyncio.Event()
    slack_block = pipe.settings.block(SlackSettings)
    async with open_web_api(slack_block, CONNECTIONS) as api:
        connection = SocketMode(api, slack_block, silence_seconds=silence_seconds)
        running = asyncio.create_task(Listener(pipe, connection).run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await running


@pytest.fixture
async def socketed(make_settings: MakeSettings, fake: FakeSlack) -> AsyncIterator[Pipeline]:
    async with open_pipeline(make_settings(slack=block(fake, app_token=SecretStr(APP_TOKEN)))) as pipe:
        yield pipe


async def test_frames_are_answered_and_then_acknowledged(socketed: Pipeline, fake: FakeSlack) -> None:
    await fake.bring(said("waiting since before we started"))
    async with listening(socketed), working(socketed):
        await fake.until(lambda fake: len(fake.texts(DIRECT)) == 1)
        await fake.bring(payload("channel_mention"), payload("edit"), payload("channel_unaddressed"))
        await fake.bring(payload("slash_command_with_words"), kind="slash_commands")
        await fake.bring(payload("button"), kind="interactive")
        await fake.until(lambda fake: len(fake.texts(CHANNEL)) == 2 and len(fake.texts(DIRECT)) == 2)
        await fake.until(lambda fake: not fake.pending)
    assert sorted(fake.texts(CHANNEL)) == ["echo: status?", "echo: yes, go on"]
    assert fake.texts(DIRECT)[1] == "echo: what is 1 < 2?"


async def test_an_outage_of_the_journal_that_lasts_longer_than_slack_repeats_itself_loses_nothing(
    socketed: Pipeline, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is acknowledged, so Slack brings none of it again: the next process has it from the spool."""

    def away(here: str) -> None:
        if here == "accept.before_journal":
            raise Unavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr("shared.door.reach", away)
        async with listening(socketed):
            await fake.bring(*(said(str(n)) for n in range(3)))
            await fake.until(lambda fake: fake.links and not fake.pending)
    async with listening(socketed), working(socketed):
        await fake.bring(said("3"))
        await fake.until(lambda fake: len(fake.texts(DIRECT)) == 4)
    assert fake.texts(DIRECT) == [f"echo: {n}" for n in range(4)]


async def test_what_is_in_the_spool_waits_until_slack_says_who_we_are(
    socketed: Pipeline, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while Slack opens no connection: its Web API is enough."""
    monkeypatch.setattr("producers.listening.REFUSED_PAUSE", 60.0)
    left = Spool(spool_path(socketed.settings.data_dir, "slack", "A01APP"))
    await left.keep([Hearing(block(fake)).event(said("left by another process"), b"{}")])
    left.close()
    fake.opens.extend([Refused("invalid_auth")] * 100)
    fake.scopes_missing.add("auth.test")
    async with listening(socketed), working(socketed):
        await fake.until(lambda fake: len(fake.of("auth.test")) > 1)
        assert fake.texts(DIRECT) == []
        fake.scopes_missing.clear()
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: left by another process"])
    assert await socketed.store.dead.all(state="open", limit=10) == []


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "too_many_websockets", "link_disabled"])
async def test_a_connection_that_slack_will_close_is_replaced_before_it_is_closed(
    socketed: Pipeline, fake: FakeSlack, reason: str
) -> None:
    async with listening(socketed), working(socketed):
        await fake.until(lambda fake: fake.open_links() == 1)
        await fake.disconnect(reason)
        await fake.until(lambda fake: fake.open_links() == 1)
        assert fake.most_links == 2  # the second came while the first was there
        await fake.bring(said("still there?"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: still there?"] and not fake.pending)


async def test_a_connection_that_slack_closes_at_once_costs_nothing(socketed: Pipeline, fake: FakeSlack) -> None:
    async with listening(socketed), working(socketed):
        await fake.until(lambda fake: fake.open_links() == 1)
        await fake.disconnect(close=True)
        await fake.bring(said("a"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: a"] and not fake.pending)


async def test_a_connection_that_falls_silent_is_given_up_and_another_one_opened(
    socketed: Pipeline, fake: FakeSlack
) -> None:
    async with listening(socketed, silence_seconds=1.0), working(socketed):
        await fake.until(lambda fake: fake.open_links() == 1)
        first = fake.links[0]
        await fake.freeze()
        await fake.bring(said("anybody there?"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: anybody there?"] and not fake.pending)
        assert first not in fake.links


async def test_a_connection_that_is_quiet_and_answers_pings_is_kept(socketed: Pipeline, fake: FakeSlack) -> None:
    async with listening(socketed, silence_seconds=8.0):
        await fake.until(lambda fake: fake.open_links() == 1)
        await fake.until(lambda fake: fake.pings == 2)
        await fake.bring(said("a"))
        await fake.until(lambda fake: not fake.pending)
    assert len(fake.of("apps.connections.open")) == 1


async def test_frames_that_cannot_be_understood_are_recorded_and_hold_up_nothing(
    socketed: Pipeline, fake: FakeSlack
) -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    async with listening(socketed), working(socketed):
        await fake.bring_raw(b"{")
        await fake.bring_raw(b"[]")
        await fake.bring_raw(b'{"envelope_id":"deep","payload":{"type":"event_callback","event":' + deep + b"}}")
        await fake.bring({"type": 5}, {"type": "event_callback", "event": 1})
        await fake.bring(said("after it"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: after it"] and not fake.pending)
    letters = await socketed.store.dead.all(state="open", limit=10)
    assert [letter["reason"] for letter in letters] == ["malformed"] * 5
    assert len(fake.of("apps.connections.open")) == 1


async def test_a_connection_that_slack_refuses_is_tried_again_later(
    socketed: Pipeline, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.listening.REFUSED_PAUSE", 0.05)
    fake.opens.extend([Refused("ratelimited", 429, 1), Refused("invalid_auth"), Refused("forbidden_team")])
    async with listening(socketed), working(socketed):
        await fake.bring(said("a"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: a"])
    times = [call.at for call in fake.calls if call.method == "apps.connections.open"]
    assert len(times) == 4 and times[1] - times[0] > 0.9


async def test_of_two_listeners_one_connects_and_the_other_takes_over(
    make_settings: MakeSettings, fake: FakeSlack
) -> None:
    soon = make_settings(slack=block(fake, app_token=SecretStr(APP_TOKEN)), lease_seconds=3)
    async with open_pipeline(soon) as pipe, working(pipe), AsyncExitStack() as second:
        async with listening(pipe):
            await fake.until(lambda fake: fake.open_links() == 1)
            await second.enter_async_context(listening(pipe))
            await fake.bring(said("a"))
            await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: a"])
            assert len(fake.of("apps.connections.open")) == 1
        await fake.bring(said("b"))
        await fake.until(lambda fake: fake.texts(DIRECT) == ["echo: a", "echo: b"])


async def test_listening_without_an_app_token_says_what_is_missing(
    make_settings: MakeSettings, fake: FakeSlack
) -> None:
    async with open_pipeline(make_settings(slack=block(fake))) as pipe:
        with pytest.raises(ConfigurationError, match="KEYTURN_SLACK__APP_TOKEN"):
            await listen_on(pipe, "slack", asyncio.Event())


# Slack's own library.


async def test_slack_sdk_sends_what_we_send_and_takes_our_blocks(pipe: Pipeline, fake: FakeSlack) -> None:
    picture = Media("https://x.org/a.png", "image/png", "a.png")
    async with answering(pipe, fake, saying(Reply("**bold** [a](https://x.org)", (picture,)))) as hook:
        await hook.bring(payload("channel_mention"))
        await fake.until(lambda fake: len(fake.shown.get(CHANNEL, ())) == 2)
    ours = fake.of("chat.postMessage")
    client = AsyncWebClient(BOT_TOKEN, base_url=f"{fake.url}/")
    for fields in ours:
        response = await client.chat_postMessage(**fields)
        assert response["ok"] and response["channel"] == CHANNEL and isinstance(response["ts"], str)
    assert (
        fake.of("chat.postMessage")[len(ours) :] == ours
    )  # it takes our fields as its arguments and sends the very same
    for block_ in Block.parse_all(ours[1]["blocks"]):
        block_.validate_json()
    changed = await client.chat_update(channel=CHANNEL, ts=fake.shown[CHANNEL][0]["ts"], text="x")
    assert changed["ok"] and (await client.auth_test())["user_id"] == "U0BOT"

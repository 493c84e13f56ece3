"""What the answers of Discord, Slack, Telegram and signal-cli mean: each is one of the few things that a caller can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import orjson
import pytest
from pydantic import SecretStr

from shared.errors import Ambiguous, BotRefused, Conflict, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import DEFAULT_WAIT
from shared.platforms import discord_api, slack_api, telegram_api
from shared.platforms.discord import DiscordSettings
from shared.platforms.discord_api import DiscordApi, open_discord_api
from shared.platforms.discord_limits import Route
from shared.platforms.signal import SignalSettings
from shared.platforms.signal_api import Daemon, open_daemon, results_in
from shared.platforms.slack import SlackSettings
from shared.platforms.slack_api import SlackMe, WebApi, open_web_api
from shared.platforms.telegram import TelegramSettings
from shared.platforms.telegram_api import BadRequest, BotApi, NothingThere, Unreadable, open_bot_api
from tests.contract.case import Answer
from tests.contract.fake_api import FakeApi
from tests.contract.fake_api import open_api as open_fake

TOKEN = SecretStr("123456:secret-of-the-bot-0123456789abcdef")
Said = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@pytest.fixture
async def fake() -> AsyncIterator[FakeApi]:
    async with open_fake() as opened:
        yield opened


def answers(fake: FakeApi, said: Said) -> None:
    """From now on every request is answered so; what is no bytes is JSON."""
    status, body, *headers = said
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    fake.answer = lambda _: Answer(status, content, tuple((headers[0] if headers else {}).items()))


async def raised(fake: FakeApi, said: Said, call: Callable[[], Awaitable[Any]]) -> PipelineError:
    answers(fake, said)
    with pytest.raises(PipelineError) as caught:
        await call()
    assert "secret" not in str(caught.value)
    return caught.value


def means(error: PipelineError, expected: type[PipelineError], wait: float | None) -> None:
    assert type(error) is expected
    if wait is not None:
        assert isinstance(error, RateLimited) and error.retry_after == timedelta(seconds=wait)


DAY = 86_400.0
PATIENT = DEFAULT_WAIT.total_seconds()

# -- Discord

DISCORD_TOKEN = "secret-of.the-bot.0123456789"
CHANNEL = Route("POST", "/channels/1/messages")
INTERACTION = Route("POST", "/webhooks/1/token")


@asynccontextmanager
async def discord(fake: FakeApi) -> AsyncIterator[DiscordApi]:
    async with open_discord_api(DiscordSettings(token=SecretStr(DISCORD_TOKEN), api_url=fake.url)) as api:
        yield api


@pytest.mark.parametrize(
    ("said", "expected", "wait"),
    [
        ((429, {"retry_after": 2.5}), RateLimited, 2.5),
        ((429, {}, {"retry-after": "3"}), RateLimited, 3),
        ((429, {"retry_after": 90_000}), RateLimited, DAY),
        ((400, {"code": 20016, "retry_after": 4}), RateLimited, 4),
        ((400, {"code": 130000}), Transient, None),
        ((500, {}), Transient, None),
        ((499, {"code": 7}), discord_api.DiscordRefused, None),
        ((408, {}), Transient, None),
        ((401, {}), BotRefused, None),
        ((403, {"code": 40001}), BotRefused, None),
        ((404, {"code": 10003, "message": "Unknown Channel"}), discord_api.DiscordRefused, None),
        ((404, {"code": True}), Transient, None),
        ((404, b"<html>"), Transient, None),
        ((200, b"<html>"), Ambiguous, None),
        ((200, []), Ambiguous, None),
        ((299, b""), Ambiguous, None),
        ((300, {"code": 7}), discord_api.DiscordRefused, None),
    ],
)
async def test_discord(fake: FakeApi, said: Said, expected: type[PipelineError], wait: float | None) -> None:
    async with discord(fake) as api:
        error = await raised(fake, said, lambda: api.call(CHANNEL, {"content": "hi"}))
    means(error, expected, wait)
    if isinstance(error, discord_api.DiscordRefused):
        assert error.code == said[1]["code"]


async def test_discord_answers_with_an_object_or_with_nothing(fake: FakeApi) -> None:
    async with discord(fake) as api:
        answers(fake, (200, {"id": "1"}))
        assert await api.call(CHANNEL, {"content": "hi"}) == {"id": "1"}
        answers(fake, (204, b""))
        assert await api.call(Route("PUT", "/channels/1"), {}) == {}


async def test_the_token_of_an_interaction_is_its_own(fake: FakeApi) -> None:
    async with discord(fake) as api:
        error = await raised(fake, (401, {"code": 50027}), lambda: api.call(INTERACTION, {}))
        assert isinstance(error, discord_api.DiscordRefused)
        answers(fake, (200, {}))
        await api.call(CHANNEL, {})
        await api.call(Route("GET", "/gateway"))
    interaction, channel, gateway = (request.headers for request in fake.requests)
    assert "authorization" not in interaction and channel["authorization"] == f"Bot {DISCORD_TOKEN}"
    assert channel["content-type"] == "application/json" and "content-type" not in gateway
    assert all(request.headers["user-agent"].startswith("DiscordBot (keyturn, ") for request in fake.requests)


@pytest.mark.parametrize(
    ("said", "everywhere"),
    [
        ((429, {"retry_after": 60, "global": True}), True),
        ((429, {"retry_after": 60}, {"x-ratelimit-scope": "global"}), True),
        ((429, {"retry_after": 60, "global": False}, {"x-ratelimit-scope": "user"}), False),
        ((429, b"<html>error code: 1015", {"retry-after": "60"}), True),
        ((429, b"", {"retry-after": "60"}), True),
        ((429, {"message": "slow down"}, {"retry-after": "60"}), False),
        ((500, {"global": True}), False),
    ],
)
async def test_a_wait_for_everything_keeps_every_route_from_being_asked(
    fake: FakeApi, said: Said, everywhere: bool
) -> None:
    async with discord(fake) as api:
        await raised(fake, said, lambda: api.call(CHANNEL, {}))
        answers(fake, (200, {}))
        if everywhere:
            with pytest.raises(RateLimited):
                await api.call(Route("POST", "/channels/2/messages"), {})
        else:
            await api.call(Route("POST", "/channels/2/messages"), {})
    assert len(fake.requests) == (1 if everywhere else 2)


async def test_a_question_to_discord_may_be_repeated(fake: FakeApi) -> None:
    async with discord(fake) as api:
        assert type(await raised(fake, (200, b"<html>"), lambda: api.ask("/gateway"))) is Transient
        answers(fake, (200, {"url": "wss://x"}))
        assert await api.ask("/gateway") == {"url": "wss://x"}
    assert fake.requests[-1].method == "GET"


# -- Slack


@asynccontextmanager
async def slack(fake: FakeApi) -> AsyncIterator[WebApi]:
    settings = SlackSettings(bot_token=SecretStr("xoxb-secret"), signing_secret=("a" * 32,), api_url=fake.url)  # type: ignore[arg-type]
    async with open_web_api(settings) as api:
        yield api


@pytest.mark.parametrize(
    ("said", "expected", "wait"),
    [
        ((429, {}, {"retry-after": "7"}), RateLimited, 7),
        ((429, b""), RateLimited, PATIENT),
        ((200, {"ok": False, "error": "ratelimited"}, {"retry-after": "90000"}), RateLimited, DAY),
        ((200, {"ok": False, "error": "invalid_auth"}), BotRefused, None),
        ((200, {"ok": False, "error": "missing_scope", "needed": "chat:write"}), Denied, None),
        ((401, b""), BotRefused, None),
        ((403, b""), Denied, None),
        ((404, b""), Denied, None),
        ((200, {"ok": False, "error": "fatal_error"}), Ambiguous, None),
        ((200, {"ok": False, "error": "internal_error"}), Transient, None),
        ((500, b""), Transient, None),
        ((302, b""), Transient, None),
        ((200, {"ok": False, "error": "channel_not_found"}), slack_api.SlackRefused, None),
        ((200, {"ok": False}), Ambiguous, None),
        ((200, {"ok": 1}), Ambiguous, None),
        ((200, []), Ambiguous, None),
        ((200, b"<html>"), Ambiguous, None),
        ((201, {"ok": True}), Transient, None),
    ],
)
async def test_slack(fake: FakeApi, said: Said, expected: type[PipelineError], wait: float | None) -> None:
    async with slack(fake) as api:
        error = await raised(fake, said, lambda: api.call("chat.postMessage", {"text": "hi"}))
    means(error, expected, wait)
    if isinstance(error, slack_api.SlackRefused):
        assert error.error == "channel_not_found"
    if isinstance(said[1], dict) and "needed" in said[1]:
        assert "needed: chat:write" in str(error)


async def test_slack_is_told_as_json_and_asked_as_a_form_with_the_apps_token(fake: FakeApi) -> None:
    answers(fake, (200, {"ok": True, "x": 1}))
    async with slack(fake) as api:
        assert await api.call("chat.update", {"text": "hi"}) == {"ok": True, "x": 1}
        await api.ask("files.info", {"file": "F 1"})
        await api.ask("apps.connections.open", {}, token=SecretStr("xapp-1"))
    told, asked, opened = fake.requests
    assert (told.path, orjson.loads(told.body)) == ("/chat.update", {"text": "hi"})
    assert told.headers["content-type"].startswith("application/json")
    assert parse_qs(asked.body.decode()) == {"file": ["F 1"]}
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert told.headers["authorization"] == asked.headers["authorization"] == "Bearer xoxb-secret"
    assert opened.headers["authorization"] == "Bearer xapp-1"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"user_id": "U1", "bot_id": "B1", "team_id": "T1", "user": "kim"}, SlackMe("U1", "B1", "T1", "kim")),
        ({"user_id": "U1", "team_id": "T1"}, SlackMe("U1", "", "T1", "bot")),
        ({"user_id": "U1"}, Transient),
        ({"team_id": "T1", "user": "kim"}, Transient),
        ({"user_id": 7, "team_id": "T1"}, Transient),
    ],
)
async def test_slack_says_who_we_are(fake: FakeApi, found: dict[str, Any], expected: Any) -> None:
    async with slack(fake) as api:
        if isinstance(expected, SlackMe):
            answers(fake, (200, {"ok": True, **found}))
            assert await api.me() == expected
        else:
            assert type(await raised(fake, (200, {"ok": True, **found}), api.me)) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"ok": False, "error": "not_an_app"}, Denied),
        ({"ok": True}, Transient),
        ({"ok": True, "url": "https://slack.example"}, Transient),
    ],
)
async def test_slack_gives_an_address_to_connect_to_or_says_why_not(fake: FakeApi, said: Any, expected: type) -> None:
    async def connect() -> None:
        async with api.socket(SecretStr("xapp-1"), 10):
            raise AssertionError("connected")

    async with slack(fake) as api:
        assert type(await raised(fake, (200, said), connect)) is expected
        if "error" in said:
            assert type(await raised(fake, (200, said), api.me)) is expected


# -- Telegram


@asynccontextmanager
async def telegram(fake: FakeApi) -> AsyncIterator[BotApi]:
    async with open_bot_api(TelegramSettings(token=TOKEN, api_url=fake.url)) as api:
        yield api


@pytest.mark.parametrize(
    ("said", "expected", "wait"),
    [
        ((429, {"parameters": {"retry_after": 9}}, {"retry-after": "3"}), RateLimited, 9),
        ((429, {"parameters": []}, {"retry-after": "3"}), RateLimited, 3),
        ((429, {"parameters": {"retry_after": 90_000}}), RateLimited, DAY),
        ((401, {}), BotRefused, None),
        ((404, {}), NothingThere, None),
        ((409, {}), Conflict, None),
        ((400, {"description": "chat not found"}), BadRequest, None),
        ((400, {"description": "moved", "parameters": {"migrate_to_chat_id": -100}}), BadRequest, None),
        ((403, {"description": "blocked"}), Undeliverable, None),
        ((408, {}), Transient, None),
        ((499, {}), Undeliverable, None),
        ((500, {}), Transient, None),
        ((200, {"ok": False}), Ambiguous, None),
        ((200, b"<html>"), Ambiguous, None),
    ],
)
async def test_telegram(fake: FakeApi, said: Said, expected: type[PipelineError], wait: float | None) -> None:
    async with telegram(fake) as api:
        error = await raised(fake, said, lambda: api.call("sendMessage", {"text": "hi"}))
    means(error, expected, wait)
    if isinstance(error, BadRequest):
        moved = error.description == "moved"
        assert error.moved_to == ("-100" if moved else None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((403, {}), Denied),
        ((400, {}), Transient),
        ((499, {}), Transient),
        ((409, {}), Conflict),
        ((502, {}), Transient),
    ],
)
async def test_nothing_about_a_question_to_telegram_is_refused_for_good_but_the_token(
    fake: FakeApi, said: Said, expected: type[PipelineError]
) -> None:
    async with telegram(fake) as api:
        assert type(await raised(fake, said, lambda: api.updates(None, 0))) is expected
        assert type(await raised(fake, said, api.me)) is expected


async def test_telegram_says_who_we_are(fake: FakeApi) -> None:
    async with telegram(fake) as api:
        answers(fake, (200, {"ok": True, "result": {"id": 7, "username": "kim_bot"}}))
        assert await api.me() == ("7", "kim_bot")
        for odd in ({"id": 7}, {"id": "x", "username": "kim"}, None):
            assert type(await raised(fake, (200, {"ok": True, "result": odd}), api.me)) is Transient


async def test_updates_are_asked_for_from_an_offset_on_and_none_is_dropped_silently(fake: FakeApi) -> None:
    async with telegram(fake) as api:
        answers(fake, (200, {"ok": True, "result": [{"update_id": 5}]}))
        assert await api.updates(None, 0) == [{"update_id": 5}]
        assert await api.updates(6, 3, limit=1) == [{"update_id": 5}]
        first, second = (orjson.loads(request.body) for request in fake.requests)
        assert "offset" not in first and (first["limit"], first["timeout"]) == (telegram_api.BATCH, 0)
        assert (second["offset"], second["limit"], second["timeout"]) == (6, 1, 3)
        assert "message" in first["allowed_updates"]
        oddities: list[Any] = [{}, [{"update_id": "5"}], [{"update_id": True}], ["words"]]
        for odd in oddities:
            error = await raised(fake, (200, {"ok": True, "result": odd}), lambda: api.updates(None, 0))
            assert isinstance(error, Unreadable) and orjson.loads(error.text)["result"] == odd


# -- signal-cli


@asynccontextmanager
async def signal(fake: FakeApi) -> AsyncIterator[Daemon]:
    settings = SignalSettings(http_url=fake.url + "/", account="+15550001111", rate_limit_seconds=60)
    async with open_daemon(settings) as daemon:
        yield daemon


def failed(code: int, **about: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no", **about}}


LIMITED = {"data": {"response": {"results": [{"type": "SUCCESS"}, {"retryAfterSeconds": 30}]}}}


@pytest.mark.parametrize(
    ("said", "expected", "wait"),
    [
        ((429, {}, {"retry-after": "7"}), RateLimited, 7),
        ((429, {}, {"retry-after": "90000"}), RateLimited, DAY),
        ((401, {}), BotRefused, None),
        ((404, {}), BotRefused, None),
        ((421, {}), BotRefused, None),
        ((400, {}), Undeliverable, None),
        ((408, {}), Transient, None),
        ((499, {}), Undeliverable, None),
        ((500, {}), Transient, None),
        ((300, {}), Undeliverable, None),
        ((200, failed(-5, **LIMITED)), RateLimited, 30),
        ((200, failed(-5)), RateLimited, 60),
        ((200, failed(-5, data=[])), RateLimited, 60),
        ((200, failed(-5, data={"response": []})), RateLimited, 60),
        ((200, failed(-6)), Denied, None),
        ((200, failed(-3)), Transient, None),
        ((200, failed(-2)), Ambiguous, None),
        ((200, failed(-32603)), Ambiguous, None),
        ((200, failed(-4)), Undeliverable, None),
        ((200, failed(-1)), Undeliverable, None),
        ((200, {"result": []}), Ambiguous, None),
        ((200, b"<html>"), Ambiguous, None),
        ((200, []), Ambiguous, None),
    ],
)
async def test_signal(fake: FakeApi, said: Said, expected: type[PipelineError], wait: float | None) -> None:
    async with signal(fake) as daemon:
        error = await raised(fake, said, lambda: daemon.call("send", {"message": "hi"}))
    means(error, expected, wait)


async def test_a_wait_that_signal_does_not_name_doubles_up_to_a_day(fake: FakeApi) -> None:
    async with signal(fake) as daemon:
        waits = [
            await raised(fake, (200, failed(-5)), partial(daemon.call, "send", {}, waits=n)) for n in (0, 1, 3, 30)
        ]
    assert [error.retry_after.total_seconds() for error in waits if isinstance(error, RateLimited)] == [
        60,
        120,
        480,
        DAY,
    ]


async def test_a_call_names_its_method_and_the_account(fake: FakeApi) -> None:
    async with signal(fake) as daemon:
        answers(fake, (299, {"result": {"timestamp": 1}}))
        assert await daemon.call("send", {"message": "hi"}) == {"timestamp": 1}
    [request] = fake.requests
    assert request.path == "/api/v1/rpc" and request.headers["content-type"] == "application/json"
    sent = orjson.loads(request.body)
    assert (sent["method"], sent["params"]) == ("send", {"account": "+15550001111", "message": "hi"})


def test_results_are_read_recipient_by_recipient() -> None:
    assert results_in({"results": [{"type": "SUCCESS"}, "words"]}) == [{"type": "SUCCESS"}]
    assert results_in({"results": {"type": "SUCCESS"}}) == results_in({}) == []

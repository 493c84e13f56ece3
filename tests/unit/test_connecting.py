"""What every platform that can be connected promises, and what `keyturn doctor` makes of its answers."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from keyturn.cli.doctor.finding import Finding, Level
from keyturn.cli.doctor.platforms import ask_platforms
from producers.connecting import Question, connect_of, examined
from shared.errors import Ambiguous, ConfigurationError, Denied, RateLimited, Unreachable
from shared.platforms import CONNECTING, PLATFORMS
from shared.platforms.discord import DiscordSettings
from shared.platforms.slack import SlackSettings
from shared.platforms.telegram import TelegramBot, TelegramSettings
from shared.settings import Settings
from tests.support import discord, feishu, slack, telegram, whatsapp
from tests.support.discord import open_discord
from tests.support.feishu import open_feishu
from tests.support.signal import open_signal
from tests.support.slack import open_slack
from tests.support.telegram import open_telegram
from tests.support.whatsapp import open_whatsapp


def is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(is_secret(part) for part in get_args(annotation))


@pytest.mark.parametrize("name", CONNECTING)
def test_every_question_is_a_setting_and_secrets_are_treated_as_such(name: str) -> None:
    part, kind = connect_of(name), PLATFORMS[name].settings
    assert kind is not None and part.steps
    for question in part.questions:
        field = kind.model_fields[question.name]
        assert question.secret or not is_secret(field.annotation), question.name
        assert question.form is None or question.looks, question.name
        assert question.choices is None or set(question.choices) == set(get_args(field.annotation))
    for setting in part.secret_settings:
        assert is_secret(kind.model_fields[setting].annotation)
    asked = {question.name.upper() for question in part.questions}
    assert asked >= set(kind.NEEDS) - {"APP_TOKEN"}  # of two ways, each has a token of its own
    assert (part.person is not None) == ("allowed_users" in kind.model_fields)


OPTIONAL = {
    ("feishu", "api_url"),
    ("feishu", "encrypt_key"),
    ("slack", "app_token"),
    ("discord", "public_key"),
    ("webhook", "scheme"),
    ("webhook", "callback_url"),
}
MADE_UP = {("whatsapp", "verify_token"), ("webhook", "secrets")}
TAKEN_AS_IT_IS = {("whatsapp", "app_secret"), *MADE_UP}  # no form is known of it


@pytest.mark.parametrize("name", CONNECTING)
def test_an_answer_of_the_wrong_form_is_refused_in_words_and_only_some_may_be_left_empty(name: str) -> None:
    for question in connect_of(name).questions:
        place = (name, question.name)
        assert question.needed == (place not in OPTIONAL), place
        assert (question.make is not None) == (place in MADE_UP), place
        assert question.make is None or not question.fault(question.make()), place
        assert bool(question.fault("no such thing: \N{PILE OF POO}")) == (place not in TAKEN_AS_IT_IS), place
        assert question.fault("a\nb") == "it has characters that cannot be seen"
        assert question.unless == ("app_token" if place == ("slack", "signing_secret") else ""), place


@pytest.mark.parametrize(
    "about", [{}, {"form": re.compile("yes"), "looks": "yes"}, {"choices": {"yes": "all is well"}}]
)
def test_an_answer_that_fits_has_no_fault(about: dict[str, Any]) -> None:
    assert Question("name", "Well?", **about).fault("yes") == ""


async def raising(error: Exception) -> Sequence[Finding]:
    raise error


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Denied("no"), Level.FAIL),
        (ConfigurationError("no"), Level.FAIL),
        (Unreachable("no connection"), Level.FAIL),
        (Ambiguous("cut"), Level.FAIL),
        (RateLimited(timedelta(seconds=3)), Level.WARN),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_refusal_and_silence_are_findings_too(error: Exception, level: Level) -> None:
    [found] = await examined("telegram", raising(error))
    assert found.level is level and found.fix and str(error) in found.detail


async def asked(**blocks: Any) -> list[Finding]:
    """What `keyturn doctor` hears of the platforms with these settings."""
    return await ask_platforms(Settings(**blocks))


def levels(found: Sequence[Finding], name: str) -> list[Level]:
    return [finding.level for finding in found if finding.check == name]


async def test_doctor_asks_telegram_for_each_bot_and_where_its_updates_go() -> None:
    async with open_telegram() as fake:
        bots = {"second": TelegramBot(token=SecretStr("98:wrong"))}
        told = TelegramSettings(
            token=SecretStr(telegram.TOKEN), webhook_secret=(SecretStr("s" * 20),), api_url=fake.url
        )
        assert levels(await asked(telegram=told), "telegram") == [Level.OK, Level.FAIL]  # none is set
        fake.webhook = "https://bot.example.org/webhooks/telegram"
        assert levels(await asked(telegram=told), "telegram") == [Level.OK]
        fake.webhook_error = {"last_error_date": int(time.time()), "last_error_message": "Connection refused"}
        found = await asked(telegram=told)
        assert levels(found, "telegram") == [Level.OK, Level.WARN] and "Connection refused" in found[1].detail
        polling = told.model_copy(update={"webhook_secret": ()})
        found = await asked(telegram=polling)
        assert levels(found, "telegram") == [Level.OK, Level.FAIL] and "bot.example.org" in found[1].detail
        two = TelegramSettings(token=SecretStr(telegram.TOKEN), api_url=fake.url, bots=bots)
        assert levels(await asked(telegram=two), "telegram") == [Level.OK, Level.FAIL]
        assert {call.method for call in fake.calls} == {"getMe", "getWebhookInfo"}  # nothing was changed


async def test_doctor_asks_slack_with_both_tokens() -> None:
    async with open_slack() as fake:
        bot, app = SecretStr(slack.BOT_TOKEN), SecretStr(slack.APP_TOKEN)
        good = SlackSettings(bot_token=bot, app_token=app, api_url=fake.url)
        assert levels(await asked(slack=good), "slack") == [Level.OK, Level.OK]
        bad = good.model_copy(update={"app_token": SecretStr("xapp-1-wrong")})
        [found] = await asked(slack=bad)
        assert found.level is Level.FAIL and "invalid_auth" in found.detail
        off = good.model_copy(update={"enabled": False})
        assert await asked(slack=off) == []


async def test_doctor_sees_that_a_discord_application_may_not_read_texts_or_is_another_one() -> None:
    async with open_discord() as fake:
        block = DiscordSettings(token=SecretStr(discord.TOKEN), public_key="AB" * 32, api_url=fake.url)
        assert levels(await asked(discord=block), "discord") == [Level.OK]
        fake.application |= {"flags": 0, "verify_key": "cd" * 32}
        found = await asked(discord=block)
        assert levels(found, "discord") == [Level.OK, Level.FAIL, Level.FAIL]
        assert "Message Content Intent" in found[1].fix and "another application's" in found[2].detail
        content = block.model_copy(update={"message_content": False, "public_key": None})
        assert levels(await asked(discord=content), "discord") == [Level.OK]


async def test_discord_does_not_take_an_address_where_nobody_answers_and_says_so() -> None:
    async with open_discord() as fake:
        fake.endpoint_answers = False
        block = DiscordSettings(token=SecretStr(discord.TOKEN), public_key="ab" * 32, api_url=fake.url)
        [found] = await connect_of("discord").set_webhook(block, "https://bot.example.org/webhooks/discord")
        assert found.level is Level.WARN and "run this command again" in found.fix


@pytest.mark.parametrize(
    ("name", "open_fake", "block", "words"),
    [
        ("discord", open_discord, {"token": "OTk.canary.token"}, "Discord refuses the token (401)"),
        ("feishu", open_feishu, {"app_id": feishu.APP_ID, "app_secret": "canary"}, "refuses the app's id or secret"),
        ("signal", open_signal, {"account": "+15559999999"}, "does not serve this account"),
        ("slack", open_slack, {"bot_token": "xoxb-canary"}, "Slack refuses the token (invalid_auth)"),
        ("telegram", open_telegram, {"token": "98:canary"}, "Telegram refuses the token (401)"),
        ("whatsapp", open_whatsapp, {"access_token": "canary", "phone_number_id": whatsapp.NUMBER}, "WhatsApp"),
        ("whatsapp", open_whatsapp, {"access_token": whatsapp.TOKEN, "phone_number_id": "1"}, "the phone number id"),
    ],
)
async def test_credentials_that_a_platform_refuses_fail_and_the_remedy_is_named(
    name: str, open_fake: Any, block: dict[str, str], words: str
) -> None:
    kind = PLATFORMS[name].settings
    assert kind is not None
    rest = {"app_secret": "s" * 16, "verify_token": "v" * 16} if name == "whatsapp" else {}
    async with open_fake() as fake:
        settings = kind(**{**rest, **block, "http_url" if name == "signal" else "api_url": fake.url})
        [found] = await asked(**{name: settings})
    assert found.level is Level.FAIL and words in found.detail
    assert found.fix == f"give it other credentials: keyturn connect {name}"
    assert "canary" not in found.detail

"""What Keyturn knows of each platform: everything that names platforms is derived from these facts."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shared.platforms import ALWAYS_ON, FOR_PROGRAMS, HIDE_IDS, LISTENING, PLATFORMS, facts_of
from shared.platforms.api import ApiSettings
from shared.platforms.facts import Facts, Idempotency, Markup, utf8_bytes, utf16_units
from shared.platforms.settings import PlatformSettings
from shared.platforms.telegram import TelegramSettings
from shared.platforms.webhook import WebhookSettings
from tests.conftest import WEBHOOK_SECRET

ABILITIES = (
    "receives",
    "listens",
    "redelivers",
    "trusts_sender",
    "users_are_admins",
    "can_edit",
    "can_thread",
    "hides_ids",
)


def abilities(facts: Facts) -> set[str]:
    return {name for name in ABILITIES if getattr(facts, name)}


@pytest.mark.parametrize(
    ("name", "title", "able"),
    [
        ("api", "API", {"receives", "redelivers", "trusts_sender", "can_thread"}),
        ("webhook", "Webhook", {"receives", "redelivers", "trusts_sender", "can_thread"}),
        ("telegram", "Telegram", {"receives", "listens", "redelivers", "can_edit", "can_thread", "hides_ids"}),
        ("local", "Local", {"users_are_admins"}),
        ("discord", "Discord", {"receives", "listens", "can_edit", "can_thread"}),
        ("slack", "Slack", {"receives", "listens", "can_edit", "can_thread"}),
        ("feishu", "Feishu", {"receives", "listens", "can_edit", "can_thread"}),
        ("whatsapp", "WhatsApp", {"receives", "redelivers", "hides_ids"}),
        ("signal", "Signal", {"listens", "can_edit", "hides_ids"}),
    ],
)
def test_a_platform_can_do_what_it_is_known_for_and_no_more(name: str, title: str, able: set[str]) -> None:
    facts = PLATFORMS[name]
    assert (facts.name, facts.title, abilities(facts)) == (name, title, able)
    assert (facts.settings is None) == (name == "local")


def test_only_where_a_repeated_send_is_recognised_is_it_safe() -> None:
    safe = {name for name, facts in PLATFORMS.items() if facts.idempotency is Idempotency.NATIVE}
    assert safe == {"api", "webhook", "local", "discord", "slack", "feishu"}


def test_telegrams_limits_are_those_of_its_api() -> None:
    facts = PLATFORMS["telegram"]
    assert facts.text_limit is not None and facts.media is not None and facts.typing_seconds is not None
    assert (facts.text_limit.units, facts.text_limit.measure("a\N{GRINNING FACE}")) == (4096, 3)
    assert (facts.media.fetched, facts.media.sent) == (20_000_000, 50_000_000)
    assert facts.typing_seconds < 5  # the sign shows for five seconds
    assert facts.markup is Markup.HTML


PER_SECOND: dict[
    str, tuple[float | None, float, float]
] = {  # what a platform takes of one bot, of one chat and of one group
    "telegram": (30, 1, 20 / 60),
    "discord": (50, 1, 1),
    "slack": (None, 1, 1),
    "feishu": (1000 / 60, 5, 5),
    "whatsapp": (80, 1 / 6, 1 / 6),
}
AT_ONCE: dict[str, tuple[int | None, int, int]] = {  # what we send at once after a silence
    "telegram": (10, 5, 5),
    "discord": (10, 5, 5),
    "slack": (None, 5, 5),
    "feishu": (20, 3, 3),
    "whatsapp": (20, 10, 10),
}


@pytest.mark.parametrize("name", PER_SECOND)
def test_a_platform_is_sent_what_it_takes_and_no_more(name: str) -> None:
    budget = PLATFORMS[name].send_budget
    assert budget is not None
    rates = (budget.bot, budget.chat, budget.group or budget.chat)
    for rate, most, at_once in zip(rates, PER_SECOND[name], AT_ONCE[name], strict=True):
        assert (rate is None) == (most is None)
        if rate is not None and most is not None:
            assert 0.7 * most <= rate.sends / rate.seconds <= most and rate.burst == at_once


def test_slack_takes_fifty_changes_of_messages_a_minute() -> None:
    budget = PLATFORMS["slack"].send_budget
    assert budget is not None and budget.edits is not None
    assert (budget.edits.sends / budget.edits.seconds, budget.edits.burst) == (50 / 60, 10)
    assert [name for name, facts in PLATFORMS.items() if facts.send_budget and facts.send_budget.edits] == ["slack"]


@pytest.mark.parametrize(
    ("name", "units", "shows_typing_for", "markup", "fetched", "sent"),
    [
        ("discord", 2000, 10, Markup.MARKDOWN, 500_000_000, 10_000_000),
        ("slack", 4000, None, Markup.MRKDWN, 1_000_000_000, 1_000_000_000),
        ("feishu", 10_000, None, Markup.MARKDOWN, 100_000_000, 30_000_000),
        ("whatsapp", 4096, 25, Markup.MARKS, 100_000_000, 100_000_000),
        ("signal", 2000, 15, Markup.RANGES, 20_000_000, 20_000_000),
    ],
)
def test_the_limits_of_each_platform_stay_as_they_are(
    name: str, units: int, shows_typing_for: float | None, markup: Markup, fetched: int, sent: int
) -> None:
    facts = PLATFORMS[name]
    assert facts.text_limit is not None and facts.media is not None
    assert (facts.text_limit.units, facts.markup) == (units, markup)
    assert (facts.media.fetched, facts.media.sent) == (fetched, sent)
    assert (facts.typing_seconds is None) == (shows_typing_for is None)
    if facts.typing_seconds is not None and shows_typing_for is not None:
        assert (
            0.6 * shows_typing_for <= facts.typing_seconds < shows_typing_for
        )  # renewed before it ends, and not for ever


def test_an_answer_is_shown_while_it_is_written_as_often_as_a_platform_takes_changes() -> None:
    """A change each `seconds`: Telegram's groups take 20 messages a minute, Feishu 20 changes of a message in three attempts."""
    shown = {name: facts.preview for name, facts in PLATFORMS.items() if facts.preview is not None}
    assert {name: preview.seconds for name, preview in shown.items()} == {
        "telegram": 3.0,
        "discord": 1.5,
        "slack": 1.5,
        "feishu": 3.0,
    }
    assert shown["feishu"].changes * 3 < 20 < shown["telegram"].changes


@pytest.mark.parametrize(
    ("name", "chat", "type_of_chat"),
    [
        ("telegram", "-1", "group"),
        ("telegram", "1", "dm"),
        ("slack", "D1", "dm"),
        ("slack", "C1", "channel"),
        ("whatsapp", "group:1", "group"),
        ("whatsapp", "1", "dm"),
        ("signal", "group:1", "group"),
        ("signal", "+1", "dm"),
        ("api", "anything", "dm"),
        ("webhook", "anything", "dm"),
        ("local", "anything", "dm"),
        ("discord", "1", "other"),
    ],
)
def test_the_type_of_a_chat_is_told_by_its_id_where_ids_tell_it(name: str, chat: str, type_of_chat: str) -> None:
    assert PLATFORMS[name].chat_type_of(chat) == type_of_chat


@pytest.mark.parametrize("name", ["api", "webhook", "local"])
def test_what_programs_and_terminals_get_is_not_cut_and_not_rewritten(name: str) -> None:
    facts = PLATFORMS[name]
    assert (facts.text_limit, facts.markup, facts.typing_seconds, facts.media) == (None, Markup.MARKDOWN, None, None)


@pytest.mark.parametrize(
    "block",
    [
        ApiSettings(keys=(SecretStr("k" * 16),)),
        WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),)),
        TelegramSettings(token=SecretStr("1:abc")),
    ],
    ids=lambda block: block.PREFIX,
)
def test_a_platform_is_on_when_its_secret_is_there_unless_it_is_turned_off(block: PlatformSettings) -> None:
    assert block.on and block.model_copy(update={"enabled": True}).on
    assert not block.model_copy(update={"enabled": False}).on
    assert not type(block)().on


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="callback_timeout_seconds"):
        WebhookSettings(callback_timeout_seconds=seconds)
    with pytest.raises(ValueError, match="send_timeout_seconds"):
        TelegramSettings(send_timeout_seconds=seconds)


def test_platforms_are_listed_by_what_they_can_do() -> None:
    assert {"telegram", "signal", "whatsapp"} <= HIDE_IDS and not HIDE_IDS & {
        "api",
        "webhook",
        "local",
        "discord",
        "slack",
    }
    assert "telegram" in LISTENING and not {*LISTENING} & {"api", "webhook", "local"}
    assert ALWAYS_ON == ("local",)
    assert FOR_PROGRAMS == ("api", "webhook")


def test_a_platform_that_nobody_has_heard_of_has_a_title_and_can_do_nothing() -> None:
    facts = facts_of("pigeon")
    assert (facts.name, facts.title, abilities(facts)) == ("pigeon", "Pigeon", set())
    assert facts.settings is None is facts.text_limit
    assert facts_of("telegram") is PLATFORMS["telegram"]


@pytest.mark.parametrize("name", ["discord", "slack", "feishu"])
def test_an_agent_is_told_that_it_cannot_use_an_api_that_is_not_there(name: str) -> None:
    facts = facts_of(name)
    assert f"no access to the {facts.title} API" in facts.prompt_note


def test_an_agent_in_a_terminal_is_told_so() -> None:
    facts = facts_of("local")
    assert "terminal" in facts.prompt_place and "terminal" in facts.answer_goes
    assert "chat" in facts_of("telegram").answer_goes


@pytest.mark.parametrize(
    ("text", "units", "size"), [("", 0, 0), ("aé", 2, 3), ("\N{GRINNING FACE}", 2, 4), ("\ud800", 1, 3)]
)
def test_text_is_measured_as_platforms_count(text: str, units: int, size: int) -> None:
    assert (utf16_units(text), utf8_bytes(text)) == (units, size)

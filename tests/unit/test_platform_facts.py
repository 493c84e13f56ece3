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
    ],
)
def test_a_platform_can_do_what_it_is_known_for_and_no_more(name: str, title: str, able: set[str]) -> None:
    facts = PLATFORMS[name]
    assert (facts.name, facts.title, abilities(facts)) == (name, title, able)
    assert (facts.settings is None) == (name == "local")


def test_only_where_a_repeated_send_is_recognised_is_it_safe() -> None:
    safe = {name for name, facts in PLATFORMS.items() if facts.idempotency is Idempotency.NATIVE}
    assert safe >= {"api", "webhook", "local"} and "telegram" not in safe


def test_telegrams_limits_are_those_of_its_api() -> None:
    facts = PLATFORMS["telegram"]
    assert facts.text_limit is not None and facts.media is not None and facts.typing_seconds is not None
    assert (facts.text_limit.units, facts.text_limit.measure("a\N{GRINNING FACE}")) == (4096, 3)
    assert (facts.media.fetched, facts.media.sent) == (20_000_000, 50_000_000)
    assert facts.typing_seconds < 5  # the sign shows for five seconds
    assert facts.markup is Markup.HTML


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


@pytest.mark.parametrize("name", ["discord", "slack"])
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

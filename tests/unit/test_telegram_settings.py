"""The settings of a Telegram bot: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shared.errors import ConfigurationError
from shared.platforms.telegram import TelegramSettings
from shared.settings import Settings
from tests.support import environment

CANARY = "canary-7f3a9c"
TOKEN = f"99:{CANARY}"


pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"TELEGRAM__{name}": value for name, value in variables.items()})


def test_without_a_token_there_is_no_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(TelegramSettings)
    assert (block.on, block.listens, block.require_mention, block.allowed_users) == (False, False, True, ())


def test_a_token_alone_polls_and_a_secret_makes_it_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch, TOKEN=TOKEN, ALLOWED_USERS="11,12").block(TelegramSettings)
    assert (block.on, block.listens, block.allowed_users) == (True, True, ("11", "12"))
    block = load(monkeypatch, WEBHOOK_SECRET="old,new").block(TelegramSettings)
    assert (block.on, block.listens, len(block.webhook_secret)) == (True, False, 2)
    block = load(monkeypatch, ENABLED="false").block(TelegramSettings)
    assert (block.on, block.listens) == (False, False)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"TOKEN": CANARY}, "TELEGRAM__TOKEN is digits"),
        ({"TOKEN": f"99:{CANARY}/../x"}, "TELEGRAM__TOKEN is digits"),
        ({"TOKEN": ""}, "TELEGRAM__TOKEN is digits"),
        ({"WEBHOOK_SECRET": CANARY}, "TELEGRAM__WEBHOOK_SECRET needs TELEGRAM__TOKEN"),
        ({"ENABLED": "true"}, "TELEGRAM__ENABLED needs TELEGRAM__TOKEN"),
        ({"TOKEN": TOKEN, "WEBHOOK_SECRET": f"{CANARY} "}, None),
        ({"TOKEN": TOKEN, "WEBHOOK_SECRET": f"{CANARY}!"}, "TELEGRAM__WEBHOOK_SECRET is 1 to 256"),
        ({"TOKEN": TOKEN, "WEBHOOK_SECRET": '[""]'}, "TELEGRAM__WEBHOOK_SECRET is 1 to 256"),
        ({"TOKEN": TOKEN, "API_URL": CANARY}, "TELEGRAM__API_URL is an http"),
        ({"TOKEN": TOKEN, "NOPE": CANARY}, "KEYTURN_TELEGRAM__NOPE"),
    ],
)
def test_what_cannot_work_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str | None
) -> None:
    if complaint is None:
        assert load(monkeypatch, **variables).block(TelegramSettings).on
        return
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert CANARY not in str(caught.value)


def test_the_token_and_the_secret_are_in_no_repr_and_known_to_the_log() -> None:
    block = TelegramSettings(token=SecretStr(TOKEN), webhook_secret=(SecretStr("hook-" + CANARY),))
    loaded = Settings(_env_file=None, telegram=block)  # type: ignore[call-arg]
    assert CANARY not in repr(loaded) + str(loaded) + repr(block)
    assert {CANARY, "hook-" + CANARY} <= set(loaded.secret_values())

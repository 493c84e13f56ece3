"""The settings of a Discord bot: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shared.errors import ConfigurationError
from shared.platforms.discord import DiscordSettings
from shared.settings import Settings
from tests.support import environment

CANARY = "canary-7f3a9c"
TOKEN = f"OTk.x.{CANARY}"
KEY = "0" * 63 + "1"

pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"DISCORD__{name}": value for name, value in variables.items()})


def test_without_a_token_there_is_no_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(DiscordSettings)
    assert (block.on, block.listens, block.require_mention, block.allowed_users) == (False, False, True, ())
    assert list(block.findings()) == [] and block.addresses == {}


def test_a_token_alone_listens_and_a_public_key_adds_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch, TOKEN=TOKEN, ALLOWED_USERS="42,43").block(DiscordSettings)
    assert (block.on, block.listens, block.allowed_users) == (True, True, ("42", "43"))
    assert [found.detail for found in block.findings()] == [
        "messages come by `keyturn listen discord`, interactions by the gateway"
    ]
    block = load(monkeypatch, PUBLIC_KEY=KEY).block(DiscordSettings)
    assert [found.detail for found in block.findings()] == [
        "messages come by `keyturn listen discord`, interactions by webhook"
    ]
    assert not load(monkeypatch, ENABLED="false").block(DiscordSettings).listens


def test_doctor_warns_where_messages_would_come_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"TOKEN": TOKEN, "MESSAGE_CONTENT": "false"}
    assert len(list(load(monkeypatch, **variables).block(DiscordSettings).findings())) == 1
    _, warning = load(monkeypatch, **variables, REQUIRE_MENTION="false").block(DiscordSettings).findings()
    assert "without text" in warning.detail and "MESSAGE_CONTENT" in warning.fix


@pytest.mark.parametrize(("token", "id"), [(TOKEN, "99"), ("MTIz.a.b", "123")])
def test_a_bot_is_known_by_the_id_in_its_token(token: str, id: str) -> None:
    assert DiscordSettings(token=SecretStr(token)).credential == id


def test_a_token_without_an_id_is_known_by_something_that_does_not_tell_it() -> None:
    known = [DiscordSettings(token=SecretStr(f"{first}.x.{CANARY}")).credential for first in ("____", "abcde", "QUJD")]
    assert len(set(known)) == 3 and not any(CANARY in id for id in known)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"TOKEN": CANARY}, "DISCORD__TOKEN is three words"),
        ({"TOKEN": f"Bot {TOKEN}"}, "DISCORD__TOKEN is three words"),
        ({"TOKEN": ""}, "DISCORD__TOKEN is three words"),
        ({"PUBLIC_KEY": KEY}, "DISCORD__PUBLIC_KEY needs DISCORD__TOKEN"),
        ({"ENABLED": "true"}, "DISCORD__ENABLED needs DISCORD__TOKEN"),
        ({"TOKEN": TOKEN, "PUBLIC_KEY": CANARY}, "DISCORD__PUBLIC_KEY is 64"),
        ({"TOKEN": TOKEN, "PUBLIC_KEY": KEY + "0"}, "DISCORD__PUBLIC_KEY is 64"),
        ({"TOKEN": TOKEN, "API_URL": CANARY}, "DISCORD__API_URL is an http"),
        ({"TOKEN": TOKEN, "GATEWAY_URL": f"https://{CANARY}"}, "DISCORD__GATEWAY_URL is a ws"),
        ({"TOKEN": TOKEN, "ALLOWED_USERS": f"42,{CANARY}"}, "DISCORD__ALLOWED_USERS: entry 2 is no Discord id"),
        ({"TOKEN": TOKEN, "ADMIN_USERS": "*"}, "DISCORD__ADMIN_USERS: entry 1 is no Discord id"),
        ({"TOKEN": TOKEN, "NOPE": CANARY}, "KEYTURN_DISCORD__NOPE"),
    ],
)
def test_what_cannot_work_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert CANARY not in str(caught.value)


def test_the_token_is_in_no_repr_and_known_to_the_log() -> None:
    block = DiscordSettings(token=SecretStr(TOKEN))
    loaded = Settings(_env_file=None, discord=block)  # type: ignore[call-arg]
    assert CANARY not in repr(loaded) + str(loaded) + repr(block)
    assert TOKEN in set(loaded.secret_values())

"""The settings of a Feishu app: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shared.errors import ConfigurationError
from shared.finding import Level
from shared.platforms.feishu import FeishuSettings
from shared.settings import Settings
from tests.support import environment

CANARY = "canary7f3a9c"
APP = {"APP_ID": "cli_a1", "APP_SECRET": CANARY}

pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"FEISHU__{name}": value for name, value in variables.items()})


def test_without_an_app_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(FeishuSettings)
    assert (block.on, block.listens, block.require_mention, block.allowed_users) == (False, False, True, ())
    assert [*block.findings()] == [] and block.addresses == {}


def test_an_app_alone_is_listened_to_and_a_key_or_token_makes_it_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch, **APP, ALLOWED_USERS="ou_ann,on_bob,*").block(FeishuSettings)
    assert (block.on, block.listens, block.allowed_users) == (True, True, ("ou_ann", "on_bob", "*"))
    assert [found.level for found in block.findings()] == [Level.OK]
    block = load(monkeypatch, VERIFICATION_TOKEN=f"{CANARY}1,{CANARY}2").block(FeishuSettings)
    assert (block.listens, block.is_told, len(block.verification_token)) == (False, True, 2)
    assert [found.level for found in block.findings()] == [Level.WARN]  # a token in the body is all that proves it
    block = load(monkeypatch, ENCRYPT_KEY=CANARY).block(FeishuSettings)
    assert [found.level for found in block.findings()] == [Level.OK]
    block = load(monkeypatch, ENABLED="false").block(FeishuSettings)
    assert (block.on, block.listens) == (False, False)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"APP_ID": "cli_a1"}, "FEISHU__APP_ID needs FEISHU__APP_SECRET"),
        ({"APP_SECRET": CANARY}, "FEISHU__APP_SECRET needs FEISHU__APP_ID"),
        ({"ENABLED": "true"}, "FEISHU__ENABLED needs FEISHU__APP_ID"),
        ({"ENCRYPT_KEY": CANARY}, "FEISHU__ENCRYPT_KEY needs FEISHU__APP_ID"),
        ({"VERIFICATION_TOKEN": CANARY}, "FEISHU__VERIFICATION_TOKEN needs FEISHU__APP_ID"),
        ({**APP, "APP_ID": f"cli {CANARY}"}, "FEISHU__APP_ID is letters"),
        ({**APP, "APP_SECRET": f"{CANARY}\r\nx: y"}, "FEISHU__APP_SECRET is 1 to 256"),
        ({**APP, "APP_SECRET": ""}, "FEISHU__APP_SECRET is 1 to 256"),
        ({**APP, "ENCRYPT_KEY": '[""]'}, "FEISHU__ENCRYPT_KEY is 1 to 256"),
        ({**APP, "VERIFICATION_TOKEN": '["", "x"]'}, "FEISHU__VERIFICATION_TOKEN is 1 to 256"),
        ({**APP, "API_URL": CANARY}, "FEISHU__API_URL is an http"),
        ({**APP, "NOPE": CANARY}, "KEYTURN_FEISHU__NOPE"),
        ({"ALLOWED_USERS": "ou_ann,Ann"}, "FEISHU__ALLOWED_USERS: entry 2 is no open id"),
        ({"ALLOWED_USERS": "feishu:ou_ann"}, "FEISHU__ALLOWED_USERS: entry 1 is no open id"),
        ({"ADMIN_USERS": "*"}, "FEISHU__ADMIN_USERS: entry 1 is no open id"),
    ],
)
def test_what_cannot_work_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert CANARY not in str(caught.value)


def test_secrets_are_in_no_repr_and_known_to_the_log() -> None:
    secrets = [f"{CANARY}{n}" for n in range(3)]
    block = FeishuSettings(
        app_id="cli_a1",
        app_secret=SecretStr(secrets[0]),
        verification_token=(SecretStr(secrets[1]),),
        encrypt_key=(SecretStr(secrets[2]),),
    )
    loaded = Settings(_env_file=None, feishu=block)  # type: ignore[call-arg]
    assert CANARY not in repr(loaded) + str(loaded) + repr(block)
    assert set(secrets) <= set(loaded.secret_values())

"""The settings of a Slack app: what cannot work is refused at start, in words that hold no secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from producers.slack.listen import SocketMode
from shared.errors import ConfigurationError
from shared.finding import Level
from shared.http_client import open_http_client
from shared.platforms.slack import SlackSettings
from shared.platforms.slack_api import WebApi
from shared.settings import Settings
from tests.support import environment

CANARY = "canary7f3a9c"
BOT_TOKEN, APP_TOKEN, SECRET = f"xoxb-1-{CANARY}", f"xapp-1-A01APP-{CANARY}", f"{CANARY}00000000"

pytestmark = pytest.mark.usefixtures("nothing_set")


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    return environment.load(monkeypatch, **{f"SLACK__{name}": value for name, value in variables.items()})


def test_without_a_token_there_is_no_app(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch).block(SlackSettings)
    assert (block.on, block.listens, block.require_mention, block.allowed_users) == (False, False, True, ())
    assert [*block.findings()] == []


def test_commands_that_only_ask_are_written_with_or_without_their_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch).block(SlackSettings).ask_commands == ("/ask",)
    assert load(monkeypatch, ASK_COMMANDS="bot,/helper").block(SlackSettings).ask_commands == ("/bot", "/helper")


def test_a_secret_makes_it_a_webhook_and_an_app_token_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    block = load(monkeypatch, BOT_TOKEN=BOT_TOKEN, ALLOWED_USERS="U01ANN,W02BOB,*").block(SlackSettings)
    assert (block.on, block.listens, block.allowed_users) == (True, False, ("U01ANN", "W02BOB", "*"))
    assert [found.level for found in block.findings()] == [Level.WARN]  # nothing comes in
    block = load(monkeypatch, SIGNING_SECRET=f"{SECRET},{SECRET}2").block(SlackSettings)
    assert (block.on, block.listens, len(block.signing_secret)) == (True, False, 2)
    block = load(monkeypatch, APP_TOKEN=APP_TOKEN).block(SlackSettings)
    assert (block.on, block.listens) == (True, True)
    assert [found.level for found in block.findings()] == [Level.OK]
    block = load(monkeypatch, ENABLED="false").block(SlackSettings)
    assert (block.on, block.listens) == (False, False)


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"BOT_TOKEN": CANARY}, "SLACK__BOT_TOKEN begins with xoxb-"),
        ({"BOT_TOKEN": f"xoxp-{CANARY}"}, "SLACK__BOT_TOKEN begins with xoxb-"),
        ({"BOT_TOKEN": f"xoxb-{CANARY}\r\nx: y"}, "SLACK__BOT_TOKEN begins with xoxb-"),
        ({"BOT_TOKEN": ""}, "SLACK__BOT_TOKEN begins with xoxb-"),
        ({"BOT_TOKEN": BOT_TOKEN, "APP_TOKEN": BOT_TOKEN}, "SLACK__APP_TOKEN begins with xapp-"),
        ({"BOT_TOKEN": BOT_TOKEN, "SIGNING_SECRET": "short"}, "SLACK__SIGNING_SECRET is 16 or more"),
        ({"BOT_TOKEN": BOT_TOKEN, "SIGNING_SECRET": '[""]'}, "SLACK__SIGNING_SECRET is 16 or more"),
        ({"SIGNING_SECRET": SECRET}, "SLACK__SIGNING_SECRET needs SLACK__BOT_TOKEN"),
        ({"APP_TOKEN": APP_TOKEN}, "SLACK__APP_TOKEN needs SLACK__BOT_TOKEN"),
        ({"ENABLED": "true"}, "SLACK__ENABLED needs SLACK__BOT_TOKEN"),
        ({"BOT_TOKEN": BOT_TOKEN, "API_URL": CANARY}, "SLACK__API_URL is an http"),
        ({"BOT_TOKEN": BOT_TOKEN, "NOPE": CANARY}, "KEYTURN_SLACK__NOPE"),
        ({"ALLOWED_USERS": "U01ANN,@ann"}, "SLACK__ALLOWED_USERS: entry 2 is no Slack id"),
        ({"ALLOWED_USERS": "slack:U01ANN"}, "SLACK__ALLOWED_USERS: entry 1 is no Slack id"),
        ({"ADMIN_USERS": "*"}, "SLACK__ADMIN_USERS: entry 1 is no Slack id"),
        ({"ADMIN_USERS": "B01BOT"}, "SLACK__ADMIN_USERS: entry 1 is no Slack id"),
    ],
)
def test_what_cannot_work_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert CANARY not in str(caught.value)


def test_tokens_and_secrets_are_in_no_repr_and_known_to_the_log() -> None:
    bot, app = SecretStr(BOT_TOKEN), SecretStr(APP_TOKEN)
    block = SlackSettings(bot_token=bot, app_token=app, signing_secret=(SecretStr(SECRET),))
    loaded = Settings(_env_file=None, slack=block)  # type: ignore[call-arg]
    assert CANARY not in repr(loaded) + str(loaded) + repr(block)
    assert {BOT_TOKEN, APP_TOKEN, SECRET} <= set(loaded.secret_values())


@pytest.mark.parametrize(("token", "credential"), [(APP_TOKEN, "A01APP"), (f"xapp-{CANARY}", None)])
async def test_a_connection_is_known_by_its_app_and_not_by_its_token(token: str, credential: str | None) -> None:
    block = SlackSettings(bot_token=SecretStr(BOT_TOKEN), app_token=SecretStr(token))
    assert block.bot_token is not None
    async with open_http_client(connections=1, seconds=1) as client:
        connection = SocketMode(WebApi(client, block.api_url, block.bot_token), block)
    assert CANARY not in connection.credential
    assert connection.credential == credential or credential is None

"""`keyturn connect`, as a person runs it: by answers in a real terminal, by options, against local fakes of the platforms."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from dotenv import dotenv_values
from starlette.responses import Response

from tests.conftest import WEBHOOK_SECRET
from tests.support import discord, feishu, signal, slack, telegram, whatsapp
from tests.support.discord import open_discord
from tests.support.feishu import open_feishu
from tests.support.place import KEYTURN, PATIENCE_SECONDS, Place
from tests.support.platform import open_platform
from tests.support.signal import open_signal
from tests.support.slack import FakeSlack, open_slack
from tests.support.telegram import Call, FakeTelegram, open_telegram
from tests.support.terminal import ENTER, Terminal
from tests.support.whatsapp import open_whatsapp

TEST_MESSAGE = "Keyturn is connected. This is its test message."
TOML = '# mine\nagent = "echo"  # the default\n\n[telegram]\nrequire_mention = true  # in groups\n'
DOTENV = "# other programs read this, too\nOTHER=1\nexport KEYTURN_LOG_LEVEL='info' # loud enough\n"
GONE = "http://127.0.0.1:1"  # nobody listens there


@pytest.fixture
def place(tmp_path: Path) -> Place:
    opened = Place(tmp_path)
    opened.write("keyturn.toml", TOML)
    opened.write(".env", DOTENV)
    return opened


async def run(place: Place, *arguments: str, said: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """A command up to its end, while the fakes go on. `said` is its standard input."""

    def wait() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KEYTURN, *arguments],
            cwd=place.directory,
            env=place.with_settings(**settings),
            input=said,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    return await asyncio.to_thread(wait)


async def answer(place: Place, platform: str, *steps: tuple[str, str], **settings: str) -> tuple[int, str]:
    """Run the command in a terminal: wait for each prompt, and type what follows it. The exit code, and all that was shown."""

    def talk() -> tuple[int, str]:
        command = [*KEYTURN, "connect", platform]
        with Terminal(command, cwd=place.directory, env=place.with_settings(**settings), columns=200) as terminal:
            asked: dict[str, int] = {}
            for text, typed in steps:
                asked[text] = asked.get(text, 0) + 1
                terminal.until(text, asked[text])
                terminal.type(typed + ENTER)
            return terminal.ended(), terminal.shown

    return await asyncio.to_thread(talk)


def written(place: Place) -> tuple[dict[str, str | None], dict[str, Any]]:
    """The variables in .env, which only its owner may read, and keyturn.toml. No line that was there is lost."""
    dotenv = place.directory / ".env"
    assert dotenv.read_text().startswith(DOTENV)
    assert dotenv.read_text() == DOTENV or dotenv.stat().st_mode & 0o777 == 0o600
    toml = (place.directory / "keyturn.toml").read_text()
    assert toml.startswith(TOML)
    assert sorted(path.name for path in place.directory.iterdir()) == [".env", "keyturn.toml"]
    return dotenv_values(dotenv), tomlkit.parse(toml).unwrap()


def nothing_written(place: Place) -> bool:
    return (place.directory / "keyturn.toml").read_text() == TOML and (place.directory / ".env").read_text() == DOTENV


@pytest.fixture
async def a_telegram() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as fake:
        yield fake


async def test_telegram_is_connected_by_answers(place: Place, a_telegram: FakeTelegram) -> None:
    """Wrong answers are asked again, a token that Telegram refuses too; no token is ever shown."""
    a_telegram.webhook = "https://old.example/hook"
    code, shown = await answer(
        place,
        "telegram",
        ("The bot's token:", "a token"),
        ("The bot's token:", "99:wrong-canary"),
        ("The bot's token:", telegram.TOKEN),
        ("public address, https://…:", ""),
        ("Your own user id:", "@ann"),
        ("Your own user id:", "42"),
        telegram__api_url=a_telegram.url,
    )
    assert code == 0, shown
    assert "That cannot be right: it is digits, a colon and a secret." in shown
    assert "Telegram refuses the token (401)" in shown and "it is a number, and no name" in shown
    assert "https://t.me/BotFather" in shown and "@helper_bot" in shown and "Next: keyturn up" in shown
    assert "canary" not in shown
    variables, settings = written(place)
    assert variables["KEYTURN_TELEGRAM__TOKEN"] == telegram.TOKEN
    assert settings["telegram"] == {"require_mention": True, "allowed_users": ["42"]}
    assert a_telegram.texts(42) == [TEST_MESSAGE]
    assert a_telegram.webhook == ""  # updates can be asked for now


async def test_telegram_is_connected_by_options(place: Place, a_telegram: FakeTelegram) -> None:
    """With an address the webhook is set, with a secret that is made up. The token comes from standard input."""
    arguments = ("connect", "telegram", "--token", "-", "--address", "https://bot.example.org/", "--allow", "42")
    ended = await run(place, *arguments, said=f"{telegram.TOKEN}\n", telegram__api_url=a_telegram.url)
    assert ended.returncode == 0, ended.stderr
    assert "canary" not in ended.stdout + ended.stderr
    variables, settings = written(place)
    assert variables["KEYTURN_TELEGRAM__TOKEN"] == telegram.TOKEN
    assert a_telegram.webhook == "https://bot.example.org/webhooks/telegram"
    secret = a_telegram.webhook_fields["secret_token"]
    assert variables["KEYTURN_TELEGRAM__WEBHOOK_SECRET"] == secret and len(secret) > 30
    assert a_telegram.webhook_fields["allowed_updates"] == ["message", "channel_post", "callback_query"]
    assert settings["telegram"]["allowed_users"] == ["42"]
    assert a_telegram.texts(42) == [TEST_MESSAGE]

    again = await run(place, "connect", "telegram", "--allow", "43", "--no-test", telegram__api_url=a_telegram.url)
    assert again.returncode == 0, again.stderr
    variables, settings = written(place)
    assert variables["KEYTURN_TELEGRAM__WEBHOOK_SECRET"] == secret  # what is set stays
    assert settings["telegram"]["allowed_users"] == ["42", "43"]
    assert a_telegram.webhook and a_telegram.texts(43) == []


@pytest.fixture
async def a_slack() -> AsyncIterator[FakeSlack]:
    async with open_slack() as fake:
        fake.people["U0ANN"] = {"id": "U0ANN", "name": "ann"}
        fake.channels["D0ANN"] = {"id": "D0ANN", "is_im": True}
        yield fake


async def test_slack_is_connected_by_answers(place: Place, a_slack: FakeSlack) -> None:
    code, shown = await answer(
        place,
        "slack",
        ("The bot user's token:", ""),
        ("The bot user's token:", slack.BOT_TOKEN),
        ("The app-level token, for Socket Mode:", slack.APP_TOKEN),
        ("Your own member id:", "U0ANN"),
        slack__api_url=a_slack.url,
    )
    assert code == 0, shown
    assert "That cannot be right: it is needed." in shown
    assert "https://api.slack.com/apps" in shown and "@helper" in shown and "Socket Mode connection" in shown
    assert "canary" not in shown
    variables, settings = written(place)
    assert variables["KEYTURN_SLACK__BOT_TOKEN"] == slack.BOT_TOKEN
    assert variables["KEYTURN_SLACK__APP_TOKEN"] == slack.APP_TOKEN
    assert "KEYTURN_SLACK__SIGNING_SECRET" not in variables  # nobody asked for it
    assert settings["slack"] == {"allowed_users": ["U0ANN"]}
    assert a_slack.texts("D0ANN") == [TEST_MESSAGE]


async def test_slack_is_connected_by_options(place: Place, a_slack: FakeSlack) -> None:
    """By webhook: the secrets come from the environment, and the operator is told what only they can enter at Slack."""
    ended = await run(
        place,
        *("connect", "slack", "--address", "https://bot.example.org", "--allow", "U0ANN"),
        slack__api_url=a_slack.url,
        slack__bot_token=slack.BOT_TOKEN,
        slack__signing_secret=slack.SIGNING_SECRET,
    )
    assert ended.returncode == 0, ended.stderr
    assert "enter https://bot.example.org/webhooks/slack as request URL" in ended.stdout
    assert "canary" not in ended.stdout + ended.stderr
    variables, settings = written(place)
    assert variables["KEYTURN_SLACK__BOT_TOKEN"] == slack.BOT_TOKEN
    assert variables["KEYTURN_SLACK__SIGNING_SECRET"] == slack.SIGNING_SECRET
    assert settings["slack"] == {"allowed_users": ["U0ANN"]}
    assert a_slack.texts("D0ANN") == [TEST_MESSAGE]


@asynccontextmanager
async def a_callback() -> AsyncIterator[Any]:
    async with open_platform(WEBHOOK_SECRET) as fake:
        yield fake


OTHERS: Mapping[str, tuple[Any, tuple[str, ...], str, Any]] = {
    "discord": (
        open_discord,
        ("--public-key", "ab" * 32, "--address", "https://bot.example.org", "--allow", "42"),
        f"--token {discord.TOKEN}",
        lambda fake: fake.texts("742") if fake.application["interactions_endpoint_url"] else None,
    ),
    "whatsapp": (
        open_whatsapp,
        ("--phone-number-id", whatsapp.NUMBER, "--address", "https://bot.example.org", "--allow", "15552223333"),
        f"--access-token {whatsapp.TOKEN} --app-secret canary-app-secret",
        lambda fake: fake.texts("15552223333"),
    ),
    "signal": (
        open_signal,
        ("--account", signal.ACCOUNT, "--allow", signal.ANN),
        "",
        lambda fake: fake.texts(signal.ANN),
    ),
    "feishu": (
        open_feishu,
        ("--app-id", feishu.APP_ID, "--allow", "ou_ann"),
        f"--app-secret {feishu.APP_SECRET}",
        lambda fake: fake.texts("ou_ann"),
    ),
    "webhook": (
        a_callback,
        (),
        f"--secrets {WEBHOOK_SECRET}",
        lambda fake: [callback.text for callback in fake.callbacks],
    ),
}
ADDRESSES = {"signal": "http_url", "webhook": "callback_url"}  # of a fake; elsewhere `api_url`


@pytest.mark.parametrize("name", list(OTHERS))
async def test_a_platform_is_connected_by_options(place: Place, name: str) -> None:
    open_fake, arguments, secrets, greeted = OTHERS[name]
    opened: AbstractAsyncContextManager[Any] = open_fake()
    words = secrets.split()
    options, said = (
        tuple("-" if n % 2 else word for n, word in enumerate(words)),
        "".join(f"{w}\n" for w in words[1::2]),
    )
    async with opened as fake:
        address = {f"{name}__{ADDRESSES.get(name, 'api_url')}": fake.url}
        ended = await run(place, "connect", name, *arguments, *options, said=said, **address)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert greeted(fake) == [TEST_MESSAGE]
        assert not any(secret in ended.stdout + ended.stderr for secret in words[1::2])
        variables, settings = written(place)
        for option, secret in zip(words[::2], words[1::2], strict=True):
            named = f"KEYTURN_{name}__{option.removeprefix('--').replace('-', '_')}".upper()
            assert variables[named] == secret
            assert secret not in str(settings)
        doctor = await run(place, "doctor", **address)
        assert f"fail   {name}" not in doctor.stdout, doctor.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 78, "--token is needed: as an option, as `-` from standard input, or as KEYTURN_TELEGRAM__TOKEN"),
        (("--token", "canary"), 78, "--token: it is digits, a colon and a secret"),
        (("--token", "99:canary-wrong"), 1, "Telegram refuses the token (401)"),
        (("--token", telegram.TOKEN, "--allow", "@ann"), 78, "--allow: it is a number, and no name"),
        (("--token", telegram.TOKEN, "--address", "http://bot.example"), 78, "--address: it begins with https://"),
        (("--token", telegram.TOKEN, "--address", "https://bot.example:9999"), 1, "only on ports 80, 88, 443 or 8443"),
    ],
    ids=["nothing", "wrong form", "refused", "a name", "no https", "wrong port"],
)
async def test_what_cannot_work_is_said_and_nothing_is_written(
    place: Place, a_telegram: FakeTelegram, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ended = await run(place, "connect", "telegram", *arguments, telegram__api_url=a_telegram.url)
    assert (ended.returncode, words in ended.stdout + ended.stderr) == (code, True), ended.stdout + ended.stderr
    assert "canary" not in ended.stdout + ended.stderr
    assert nothing_written(place) and a_telegram.webhook == ""


async def test_where_settings_cannot_be_written_the_platform_is_told_nothing(
    tmp_path: Path, a_telegram: FakeTelegram
) -> None:
    """It would post with a secret that nobody has."""
    place = Place(tmp_path)
    (tmp_path / ".env").symlink_to(tmp_path / "gone" / ".env")
    arguments = ("connect", "telegram", "--token", telegram.TOKEN, "--address", "https://bot.example")
    ended = await run(place, *arguments, telegram__api_url=a_telegram.url)
    assert ended.returncode == 78 and ".env cannot be written" in ended.stderr, ended.stdout + ended.stderr
    assert a_telegram.webhook == ""


@pytest.fixture
def on_call(a_telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], object]]:
    """By method: what happens while Telegram is asked."""
    answer, happens = a_telegram._do, dict[str, Callable[[], object]]()

    async def do(call: Call) -> Response:
        happens.get(call.method, lambda: None)()
        return await answer(call)

    monkeypatch.setattr(a_telegram, "_do", do)
    return happens


async def test_telegram_is_told_a_secret_only_when_it_is_written(
    place: Place, a_telegram: FakeTelegram, on_call: dict[str, Callable[[], object]]
) -> None:
    """Whoever ends the command then, has it."""
    dotenv, seen = place.directory / ".env", list[str | None]()
    on_call["setWebhook"] = lambda: seen.append(dotenv_values(dotenv).get("KEYTURN_TELEGRAM__WEBHOOK_SECRET"))
    arguments = ("connect", "telegram", "--token", telegram.TOKEN, "--address", "https://bot.example", "--no-test")
    ended = await run(place, *arguments, telegram__api_url=a_telegram.url)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert seen == [a_telegram.webhook_fields["secret_token"]]


async def test_telegram_is_told_no_secret_if_the_settings_are_changed_meanwhile(
    place: Place, a_telegram: FakeTelegram, on_call: dict[str, Callable[[], object]]
) -> None:
    dotenv = place.directory / ".env"
    on_call["getMe"] = lambda: dotenv.write_text(f"{DOTENV}MINE=2\n")
    arguments = ("connect", "telegram", "--token", telegram.TOKEN, "--address", "https://bot.example")
    ended = await run(place, *arguments, telegram__api_url=a_telegram.url)
    assert ended.returncode == 78 and ".env was changed meanwhile" in ended.stderr
    assert a_telegram.webhook == "" and dotenv.read_text() == f"{DOTENV}MINE=2\n"


async def test_a_platform_that_does_not_answer_is_named_and_nothing_is_written(place: Place) -> None:
    ended = await run(place, "connect", "telegram", "--token", telegram.TOKEN, telegram__api_url=GONE)
    assert ended.returncode == 1 and nothing_written(place)
    assert "no connection to 127.0.0.1:1 (Connection refused)" in ended.stdout
    assert "Nothing was written." in ended.stderr and "canary" not in ended.stdout + ended.stderr
    unknown = await run(place, "connect", "pigeon")
    assert unknown.returncode == 2 and "discord, feishu, signal, slack" in unknown.stderr


async def test_a_test_message_that_is_refused_ends_with_1_and_the_settings_stay(
    place: Place, a_telegram: FakeTelegram
) -> None:
    a_telegram.blocked.add(42)
    arguments = ("connect", "telegram", "--token", telegram.TOKEN, "--allow", "42")
    ended = await run(place, *arguments, telegram__api_url=a_telegram.url)
    assert ended.returncode == 1 and "The settings are written. The test message was not sent" in ended.stderr
    assert "bot was blocked by the user. A bot may not speak first: write to it" in ended.stderr
    assert written(place)[0]["KEYTURN_TELEGRAM__TOKEN"] == telegram.TOKEN


async def test_a_variable_that_wins_over_what_is_written_is_named(place: Place, a_telegram: FakeTelegram) -> None:
    ended = await run(
        place,
        *("connect", "telegram", "--token", telegram.TOKEN, "--no-test"),
        telegram__api_url=a_telegram.url,
        telegram__token="98:canary-old",
    )
    assert ended.returncode == 0, ended.stderr
    assert "KEYTURN_TELEGRAM__TOKEN is set to something else in the environment, which wins" in ended.stdout
    assert "canary" not in ended.stdout + ended.stderr

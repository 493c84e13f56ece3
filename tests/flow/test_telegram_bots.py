"""Several Telegram bots in one deployment: each hears, answers and remembers for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from producers.listening import listen_on
from shared import settings
from shared.errors import ConfigurationError
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.telegram import TelegramBot, TelegramSettings
from shared.settings import Settings
from tests.flow.test_telegram import ANN, SECRET, block, said
from tests.support.door import Door, open_door
from tests.support.pipe import Rig
from tests.support.servers import Databases
from tests.support.telegram import FakeTelegram, open_telegram
from tests.support.working import working

WORK_TOKEN, WORK_SECRET = "77:AAwork-canary_secret", "canary-work-secret"
MakeSettings = Callable[..., Settings]


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@dataclass
class Two:
    pipe: Pipeline
    home: FakeTelegram
    work: FakeTelegram
    door: Door

    async def post(self, path: str, update: dict[str, Any], secret: str) -> int:
        headers = {"X-Telegram-Bot-Api-Secret-Token": secret}
        response = await self.door.client.post(path, content=orjson.dumps(update), headers=headers)
        return response.status_code


@pytest.fixture
async def two(make_settings: MakeSettings) -> AsyncIterator[Two]:
    """One bot without a name and one called work, both told by webhook."""
    async with AsyncExitStack() as stack:
        home, work = [await stack.enter_async_context(open_telegram()) for _ in range(2)]
        work.token = WORK_TOKEN
        secrets = (SecretStr(WORK_SECRET),)
        bot = TelegramBot(token=SecretStr(WORK_TOKEN), webhook_secret=secrets, api_url=work.url)
        telegram = block(home, webhook_secret=(SecretStr(SECRET),), bots={"work": bot})
        pipe = await stack.enter_async_context(open_pipeline(make_settings(telegram=telegram)))
        door = await stack.enter_async_context(open_door(pipe))
        await stack.enter_async_context(working(pipe))
        yield Two(pipe, home, work, door)


async def test_the_same_person_has_a_conversation_with_each_bot_and_each_answers_itself(two: Two) -> None:
    update = said("hello")  # even the same update id: each bot counts for itself
    assert await two.post("/webhooks/telegram", update, SECRET) == 200
    assert await two.post("/webhooks/telegram/work", update, WORK_SECRET) == 200
    for fake in (two.home, two.work):
        await fake.until(lambda fake: fake.texts(ANN))
        assert fake.texts(ANN) == ["echo: hello"]
    rig = Rig(two.pipe)
    for key in (f"agent:main:telegram:dm:{ANN}", f"agent:main:telegram@work:dm:{ANN}"):
        assert await rig.transcript(key) == ["hello", "echo: hello"]


async def test_one_bots_secret_opens_no_other_bots_door(two: Two) -> None:
    assert await two.post("/webhooks/telegram/work", said("hello"), SECRET) == 401
    assert await two.post("/webhooks/telegram", said("hello"), WORK_SECRET) == 401
    assert await two.post("/webhooks/telegram/other", said("hello"), WORK_SECRET) == 404


async def test_every_bot_without_a_webhook_is_polled(make_settings: MakeSettings) -> None:
    async with open_telegram() as home, open_telegram() as work:
        work.token = WORK_TOKEN
        bot = TelegramBot(token=SecretStr(WORK_TOKEN), api_url=work.url)
        async with open_pipeline(make_settings(telegram=block(home, bots={"work": bot}))) as pipe, working(pipe):
            stopping = asyncio.Event()
            running = asyncio.create_task(listen_on(pipe, "telegram", stopping))
            await home.bring(said("one"))
            await work.bring(said("two"))
            await home.until(lambda fake: fake.texts(ANN) == ["echo: one"])
            await work.until(lambda fake: fake.texts(ANN) == ["echo: two"])
            stopping.set()
            await running


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"KEYTURN_TELEGRAM__{name}", value)
    return settings.load()


def test_bots_come_from_the_environment_and_keep_their_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    only = load(monkeypatch, BOTS__WORK__TOKEN=WORK_TOKEN, BOTS__WORK__WEBHOOK_SECRET="old,new")
    assert (
        only.block(TelegramSettings).on
        and not only.block(TelegramSettings).listens
        and list(only.block(TelegramSettings).accounts) == ["work"]
    )
    assert len(only.block(TelegramSettings).accounts["work"].webhook_secret) == 2 and only.connected == (
        "local",
        "telegram",
    )
    assert WORK_TOKEN in only.secret_values() and "canary" not in repr(only)
    both = load(monkeypatch, TOKEN="99:a")
    assert both.block(TelegramSettings).listens and list(both.block(TelegramSettings).accounts) == ["", "work"]


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"TOKEN": WORK_TOKEN, "BOTS__WORK__TOKEN": WORK_TOKEN}, "the same token"),
        ({"BOTS__WORK__TOKEN": "canary"}, "as @BotFather gave it"),
        ({"BOTS__WORK__WEBHOOK_SECRET": "x"}, "BOTS__WORK__TOKEN: Field required"),
        ({"BOTS": '{"a b": {"token": "77:a"}}'}, "lower-case word"),
        ({"BOTS__WORK__TOKEN": WORK_TOKEN, "BOTS__WORK__API_URL": "ftp://canary"}, "http"),
    ],
)
def test_bots_that_cannot_work_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(monkeypatch, **variables)
    assert "canary" not in str(caught.value)

"""A question with buttons, from the tool call that needs a yes to the pressed button and the resumed turn: a real worker, and a
local fake of each platform. What the buttons of every platform promise is in tests/contract."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

import orjson
import pytest
from nacl.signing import SigningKey
from pydantic import SecretStr

from producers.listening import listen_on
from shared.choices import DATA_BYTES
from shared.failpoints import Injected
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.contract import discord, slack, telegram
from tests.flow.test_asking import BOTH, TEA, careful
from tests.flow.test_steps import by_rows
from tests.store.books import ask, write
from tests.support import counted
from tests.support.counted import World
from tests.support.discord import ME, FakeDiscord, open_discord
from tests.support.door import Door, open_door
from tests.support.openai import Asked, a_call, open_provider
from tests.support.servers import Databases
from tests.support.slack import APP_TOKEN, FakeSlack, open_slack, signed
from tests.support.slack import BOT as SLACK_BOT
from tests.support.telegram import BOT, FakeTelegram, Refused, open_telegram
from tests.support.working import working
from workers.delivery import button_removal

SECONDS = 90.0
SETTLED = "That question is settled already."
MakeSettings = Callable[..., Settings]
Buttons = list[tuple[str, str]]
Model = Callable[[Asked], str | dict[str, Any]]
_ids = count(5001)


class Chat(ABC):
    """A platform's direct chat between Ann and the bot, and a group with both and Bob."""

    name: ClassVar[str]
    door: Door
    pipe: Pipeline

    @classmethod
    @abstractmethod
    def open(cls) -> AbstractAsyncContextManager[Self]:
        """With the fake behind it."""

    @abstractmethod
    def blocks(self) -> dict[str, Any]: ...

    @abstractmethod
    async def say(self, text: str, *, group: bool = False) -> None:
        """Ann says something to the bot."""

    @abstractmethod
    async def press(self, data: str, *, id: int = 0, by_bob: bool = False, group: bool = False) -> None:
        """Somebody presses a button below the bot's last message that had any. The same id: the same press again."""

    @abstractmethod
    def shown(self) -> list[tuple[str, Buttons]]:
        """The bot's messages as the chats show them now: text and buttons."""

    @abstractmethod
    def heard(self) -> int:
        """How many presses the platform knows to be heard."""

    def texts(self) -> list[str]:
        return [text for text, _ in self.shown()]

    def buttons(self) -> dict[str, str]:
        """Of the last message that has any, by their words."""
        return dict(next((buttons for _, buttons in reversed(self.shown()) if buttons), []))

    async def until(self, true: Callable[[Chat], object]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while not true(self):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"it did not come; shown is {self.shown()}") from None

    async def until_asked(self) -> dict[str, str]:
        await self.until(lambda chat: chat.buttons())
        return self.buttons()


class TelegramChat(Chat):
    """By webhook."""

    name = "telegram webhook"

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake
        self._heard = 0

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        async with open_telegram() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return telegram.block(self.fake, telegram.SECRETS[0])

    async def bring(self, update: dict[str, Any]) -> bytes:
        headers = {telegram.HEADER: telegram.SECRETS[0]}
        response = await self.door.client.post("/webhooks/telegram", content=orjson.dumps(update), headers=headers)
        assert response.status_code == 200
        return response.content

    async def say(self, text: str, *, group: bool = False) -> None:
        update = telegram.update(next(_ids), telegram.ANN, text=text)
        if group:
            said = {"text": f"@helper_bot {text}", "entities": [{"type": "mention", "offset": 0, "length": 11}]}
            update["message"] |= {"chat": {"id": telegram.GROUP, "type": "supergroup", "title": "Ops"}, **said}
        await self.bring(update)

    async def press(self, data: str, *, id: int = 0, by_bob: bool = False, group: bool = False) -> None:
        id = id or next(_ids)
        person = {"id": 12 if by_bob else telegram.ANN, "is_bot": False, "first_name": "Bob" if by_bob else "Ann"}
        place = {"id": telegram.GROUP, "type": "supergroup", "title": "Ops"} if group else None
        below = {"message_id": 1, "from": BOT, "chat": place or {"id": telegram.ANN, "type": "private"}, "date": 0}
        query = {"id": str(id), "from": person, "message": below, "chat_instance": "-1", "data": data}
        answer = await self.bring({"update_id": id, "callback_query": query})
        self._heard += orjson.loads(answer or b"{}") == {
            "method": "answerCallbackQuery",
            "callback_query_id": str(id),
        }

    def shown(self) -> list[tuple[str, Buttons]]:
        messages = [message for chat in self.fake.shown.values() for message in chat]
        return [(message["text"], _keyboard(message)) for message in messages]

    def heard(self) -> int:
        return self._heard


class PolledTelegramChat(TelegramChat):
    name = "telegram polling"

    def blocks(self) -> dict[str, Any]:
        return telegram.block(self.fake)

    async def bring(self, update: dict[str, Any]) -> bytes:
        await self.fake.bring({**update, "update_id": next(_ids)})
        return b""

    def heard(self) -> int:
        return len(self.fake.of("answerCallbackQuery"))


def _keyboard(message: dict[str, Any]) -> Buttons:
    rows = message.get("reply_markup", {}).get("inline_keyboard", ())
    return [(button["text"], button["callback_data"]) for row in rows for button in row]


class SlackChat(Chat):
    """By webhook; the group is a channel, in which the bot answers in a thread."""

    name = "slack webhook"

    def __init__(self, fake: FakeSlack) -> None:
        self.fake = fake
        self.thread = ""
        self._heard = 0

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        async with open_slack() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return slack.block(self.fake, slack.SECRETS[0])

    async def bring(self, payload: dict[str, Any]) -> None:
        body, kind = orjson.dumps(payload), "application/json"
        if payload["type"] == "block_actions":
            body, kind = urlencode({"payload": body.decode()}).encode(), "application/x-www-form-urlencoded"
        headers = {"content-type": kind, **signed(body, slack.SECRETS[0])}
        response = await self.door.client.post("/webhooks/slack", content=body, headers=headers)
        assert (response.status_code, response.content) == (200, b"")
        self._heard += payload["type"] == "block_actions"

    async def say(self, text: str, *, group: bool = False) -> None:
        said = slack.callback(next(_ids), text=text)
        self.thread = said["event"]["ts"]
        if group:
            said["event"] |= {"text": f"<@{SLACK_BOT}> {text}", "channel": "C01GEN", "channel_type": "channel"}
        await self.bring(said)

    async def press(self, data: str, *, id: int = 0, by_bob: bool = False, group: bool = False) -> None:
        channel = {"id": "C01GEN", "name": "general"} if group else {"id": slack.DIRECT[0], "name": "directmessage"}
        below = {"thread_ts": self.thread} if group else {}
        await self.bring(slack.press(id or next(_ids), data, slack.PEOPLE[by_bob], channel, **below))

    def shown(self) -> list[tuple[str, Buttons]]:
        messages = [message for channel in self.fake.shown.values() for message in channel]
        return [(message["text"], slack.buttons_of(message)) for message in messages]

    def heard(self) -> int:
        return self._heard


class SlackSocketChat(SlackChat):
    name = "slack socket"

    def blocks(self) -> dict[str, Any]:
        return slack.block(self.fake, app_token=SecretStr(APP_TOKEN))

    async def bring(self, payload: dict[str, Any]) -> None:
        is_press = payload["type"] == "block_actions"
        await self.fake.bring(payload, kind="interactive" if is_press else "events_api")
        self._heard += is_press

    def heard(self) -> int:
        return self._heard if not self.fake.pending else 0


class DiscordChat(Chat):
    """Messages and presses by the gateway; the group is a channel of a guild."""

    name = "discord gateway"
    secrets: tuple[str, ...] = ()

    def __init__(self, fake: FakeDiscord) -> None:
        fake.channels[discord.CHANNEL] = {"id": discord.CHANNEL, "type": 0, "name": "ops", "guild_id": "1200"}
        fake.channels["1542"] = {"id": "1542", "type": 1}
        fake.members["1200"] = {"roles": []}
        self.fake = fake
        self._responses: list[Any] = []

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        async with open_discord() as fake:
            yield cls(fake)

    def blocks(self) -> dict[str, Any]:
        return discord.block(self.fake, *self.secrets)

    async def say(self, text: str, *, group: bool = False) -> None:
        said = discord.dispatch(next(_ids), discord.person(discord.ANN), text)["d"]
        if group:
            there = {"channel_id": discord.CHANNEL, "guild_id": "1200", "channel_type": 0, "mentions": [ME]}
            said |= {**there, "content": f"<@{ME['id']}> {text}"}
        await self.fake.until(lambda fake: fake.live)
        await self.fake.happen("MESSAGE_CREATE", said)

    async def press(self, data: str, *, id: int = 0, by_bob: bool = False, group: bool = False) -> None:
        person = discord.person(discord.BOB if by_bob else discord.ANN)
        pressed = discord.press(id or next(_ids), person, data)
        if group:
            channel = {"id": discord.CHANNEL, "type": 0, "name": "ops"}
            pressed |= {"channel_id": discord.CHANNEL, "channel": channel, "guild_id": "1200", "context": 0}
            pressed |= {"member": {"user": pressed.pop("user"), "roles": []}}
        await self.bring_press(pressed)

    async def bring_press(self, pressed: dict[str, Any]) -> None:
        await self.fake.happen("INTERACTION_CREATE", pressed)

    def shown(self) -> list[tuple[str, Buttons]]:
        messages = [message for channel in self.fake.shown.values() for message in channel]
        return [(message["content"], discord.buttons_of(message)) for message in messages]

    def heard(self) -> int:
        return list(self.fake.originals.values()).count({"type": 6}) + self._responses.count({"type": 6})


class DiscordWebhookChat(DiscordChat):
    """Presses by webhook."""

    name = "discord webhook"
    secrets = discord.SECRETS[:1]

    async def bring_press(self, pressed: dict[str, Any]) -> None:
        body, at = orjson.dumps(pressed), str(int(time.time()))
        signature = SigningKey(bytes.fromhex(self.secrets[0])).sign(at.encode() + body).signature.hex()
        headers = {discord.SIGNATURE: signature, discord.TIMESTAMP: at}
        response = await self.door.client.post("/webhooks/discord", content=body, headers=headers)
        assert response.status_code == 200
        self._responses.append(response.json())


CHATS = [TelegramChat, PolledTelegramChat, SlackChat, SlackSocketChat, DiscordChat, DiscordWebhookChat]


@pytest.fixture
def world() -> World:
    return counted.new_world()


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture(params=CHATS, ids=lambda chat: chat.name)
async def closed(request: pytest.FixtureRequest) -> AsyncIterator[Chat]:
    async with request.param.open() as opened:
        yield opened


@asynccontextmanager
async def opened(chat: Chat, model: Model, make_settings: MakeSettings, **settings: Any) -> AsyncIterator[Chat]:
    """The chat with a receiver, a listener where there is one, and a worker whose agent asks before it charges."""
    async with (
        open_provider(answer=model) as provider,
        open_pipeline(make_settings(**chat.blocks(), **settings)) as pipe,
        open_door(pipe) as door,
    ):
        chat.door, chat.pipe, stopping = door, pipe, asyncio.Event()
        platform = chat.name.partition(" ")[0]
        listens = pipe.settings.platform(platform).listens  # type: ignore[union-attr]
        listening = asyncio.create_task(listen_on(pipe, platform, stopping)) if listens else None
        async with working(pipe, careful(provider, ask_user=True)):
            yield chat
        stopping.set()
        if listening is not None:
            await listening


async def questions(chat: Chat) -> list[str]:
    return [row["state"] for row in await ask(chat.pipe.store, "SELECT state FROM asks ORDER BY created_at, id")]


async def test_a_pressed_button_takes_the_run_up_once_and_the_buttons_go(
    closed: Chat, make_settings: MakeSettings, world: World
) -> None:
    async with opened(closed, by_rows(TEA), make_settings) as chat:
        await chat.say("tea please")
        buttons = await chat.until_asked()
        assert list(buttons) == ["Approve", "Deny"] and "(/approve or /deny)" in chat.texts()[-1]
        assert all(len(data.encode()) <= DATA_BYTES for data in buttons.values())
        for _ in range(2):  # the platform brings the same press again
            await chat.press(buttons["Approve"], id=4711)
        await chat.until(lambda chat: "enjoy" in chat.texts() and not chat.buttons())
        await chat.press(buttons["Approve"])
        await chat.until(lambda chat: SETTLED in chat.texts())
        await chat.until(lambda chat: chat.heard() >= 2)
        assert chat.texts().count("enjoy") == 1 and world.charged == ["tea"]
        assert await questions(chat) == ["answered"]
        rows = await ask(chat.pipe.store, "SELECT role, text FROM messages")
        assert ("user", "/approve") in [(row["role"], row["text"]) for row in rows]  # nobody typed the question's id


async def test_a_pressed_no_is_a_no(closed: Chat, make_settings: MakeSettings, world: World) -> None:
    async with opened(closed, by_rows(TEA), make_settings) as chat:
        await chat.say("tea please")
        await chat.press((await chat.until_asked())["Deny"])
        await chat.until(lambda chat: "enjoy" in chat.texts())
        assert world.charged == [] and await questions(chat) == ["answered"]


@pytest.mark.parametrize("per_user", [False, True])
async def test_somebody_else_who_presses_is_told_so_and_the_question_stays_open(
    closed: Chat, make_settings: MakeSettings, world: World, per_user: bool
) -> None:
    async with opened(closed, by_rows(TEA), make_settings, group_sessions_per_user=per_user) as chat:
        await chat.say("tea please", group=True)
        buttons = await chat.until_asked()
        await chat.press(buttons["Approve"], by_bob=True, group=True)
        await chat.until(lambda chat: "This question is for somebody else." in chat.texts())
        assert world.charged == [] and await questions(chat) == ["open"] and chat.buttons() == buttons
        await chat.press(buttons["Approve"], group=True)
        await chat.until(lambda chat: "enjoy" in chat.texts())
        assert world.charged == ["tea"]


async def test_a_button_of_an_expired_question_says_so_and_goes(
    closed: Chat, make_settings: MakeSettings, world: World
) -> None:
    async with opened(closed, by_rows(TEA), make_settings, sweep_seconds=3600) as chat:
        await chat.say("tea please")
        buttons = await chat.until_asked()
        await write(chat.pipe.store, "UPDATE asks SET state = 'expired', ended_at = 1")
        await chat.press(buttons["Approve"])
        await chat.until(lambda chat: any("has expired" in text for text in chat.texts()) and not chat.buttons())
        assert world.charged == []


async def test_each_of_two_questions_has_its_buttons_until_it_is_answered(
    closed: Chat, make_settings: MakeSettings, world: World
) -> None:
    async with opened(closed, by_rows(BOTH), make_settings) as chat:
        await chat.say("tea please")
        buttons = await chat.until_asked()
        assert list(buttons) == ["1: Approve", "1: Deny", "2: Approve", "2: Deny"]
        await chat.press(buttons["2: Deny"])
        await chat.until(lambda chat: list(chat.buttons()) == ["1: Approve", "1: Deny"])
        assert world.charged == []
        await chat.press(buttons["1: Approve"])
        await chat.until(lambda chat: "enjoy" in chat.texts() and not chat.buttons())
        assert world.charged == ["tea"]


async def test_a_choice_is_pressed_and_the_model_reads_its_words(closed: Chat, make_settings: MakeSettings) -> None:
    read: list[str] = []

    def answer(asked: Asked) -> str | dict[str, Any]:
        last = asked.body["messages"][-1]
        if last["role"] != "tool":
            arguments = '{"question":"Which one?","choices":["the red one","the blue one"]}'
            return {"content": None, "tool_calls": [a_call("ask_user", arguments, "c0")]}
        read.append(last["content"])
        return "good choice"

    async with opened(closed, answer, make_settings) as chat:
        await chat.say("a cup please")
        buttons = await chat.until_asked()
        assert list(buttons) == ["the red one", "the blue one"]
        assert not any("blue" in data for data in buttons.values())
        await chat.press(buttons["the blue one"])
        await chat.until(lambda chat: "good choice" in chat.texts() and not chat.buttons())
        assert read == ["the blue one"]


async def test_a_typed_answer_takes_the_buttons_away_too(
    closed: Chat, make_settings: MakeSettings, world: World
) -> None:
    async with opened(closed, by_rows(TEA), make_settings) as chat:
        await chat.say("tea please")
        await chat.until_asked()
        await chat.say("/approve")
        await chat.until(lambda chat: "enjoy" in chat.texts() and not chat.buttons())
        assert world.charged == ["tea"]


async def test_buttons_that_cannot_be_taken_away_hold_up_nothing(make_settings: MakeSettings, world: World) -> None:
    async with TelegramChat.open() as closed, opened(closed, by_rows(TEA), make_settings) as chat:
        await chat.say("tea please")
        buttons = await chat.until_asked()
        refusals = [Refused(400, "Bad Request: message can't be edited")] * 2
        closed.fake.refused_edits.extend(refusals)
        await chat.press(buttons["Approve"])
        await chat.until(lambda chat: "enjoy" in chat.texts())
        await chat.until(lambda chat: not closed.fake.refused_edits)
        assert chat.texts().count("enjoy") == 1 and world.charged == ["tea"] and chat.buttons() == buttons


async def test_an_error_that_nobody_foresaw_while_buttons_are_taken_away_harms_no_answer(
    make_settings: MakeSettings, world: World, monkeypatch: pytest.MonkeyPatch, foreseen: Callable[[str], None]
) -> None:
    foreseen("buttons")
    reached: list[str] = []

    def breaking(point: str) -> None:
        reached.append(point)
        raise Injected(point)

    monkeypatch.setattr(button_removal, "reach", breaking)
    async with TelegramChat.open() as closed, opened(closed, by_rows(TEA), make_settings) as chat:
        await chat.say("tea please")
        buttons = await chat.until_asked()
        await chat.press(buttons["Approve"])
        await chat.until(lambda chat: "enjoy" in chat.texts() and reached)
        assert reached == ["buttons.before_removal"] and world.charged == ["tea"] and chat.buttons() == buttons
        monkeypatch.undo()
        await chat.press(buttons["Approve"])  # says that the question is settled, and takes the buttons away
        await chat.until(lambda chat: SETTLED in chat.texts() and not chat.buttons())

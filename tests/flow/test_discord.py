"""Discord from gateway frame and signed interaction to sent reply: real Valkey, a real worker, and a local Discord."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import discord
import httpx
import orjson
import pytest
from nacl.signing import SigningKey
from pydantic import SecretStr
from structlog.testing import capture_logs

from producers.discord import gateway, listen, lookup
from producers.discord.interactions import NOT_ALLOWED
from producers.discord.position import Position
from producers.listening import listen_on
from shared import keys
from shared.agent.turn import Result, Turn
from shared.background import end_tasks
from shared.errors import Denied, RateLimited, Transient, Unavailable
from shared.messages import Entry, Media, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.discord import DiscordSettings
from shared.platforms.discord_api import DiscordApi
from shared.settings import Settings
from tests.flow.told import Told
from tests.store.books import ask, write
from tests.support.discord import ME, TOKEN, FakeDiscord, Refused, Trouble, a_message, open_discord, rate_limited
from tests.support.door import Door, open_door
from tests.support.servers import Databases
from tests.support.working import working
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent

PAYLOADS = Path(__file__).parents[1] / "payloads/discord"
SIGNING = SigningKey(b"1" * 32)
KEY = SIGNING.verify_key.encode().hex()
ANN, DM, GUILD = "42", "1500000000000000001", "1200000000000000001"
CHANNEL, THREAD, FORUM = "1300000000000000001", "1310000000000000001", "1320000000000000001"
POST, ROLE = "1400000000000000050", "1200000000000000007"
MakeSettings = Callable[..., Settings]

CHANNELS = [
    {"id": CHANNEL, "type": 0, "name": "ops", "topic": "Keeping it up", "parent_id": None},
    {"id": FORUM, "type": 15, "name": "questions", "topic": "Ask here", "parent_id": None},
]
THREADS = [
    {"id": THREAD, "type": 11, "name": "disk full", "parent_id": CHANNEL, "guild_id": GUILD},
    {"id": POST, "type": 11, "name": "How do I?", "parent_id": FORUM, "guild_id": GUILD},
]
OURS = {"user": ME, "roles": [ROLE]}
ROLES = [{"id": ROLE, "name": "Helper", "tags": {"bot_id": "99"}}, {"id": "1200000000000000008", "name": "admins"}]
HOME = {"id": GUILD, "name": "Home", "channels": CHANNELS, "threads": THREADS, "roles": ROLES, "members": [OURS]}


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses that Discord asks for are for Discord's sake."""
    monkeypatch.setattr(gateway, "IDENTIFY_EVERY", 0.05)
    monkeypatch.setattr(gateway, "INVALID_PAUSE", (0.0, 0.05))
    monkeypatch.setattr(gateway, "SHORT_PAUSE", 0.01)


@pytest.fixture
async def fake() -> AsyncIterator[FakeDiscord]:
    async with open_discord() as opened:
        opened.guilds.append(HOME)
        yield opened


def block(fake: FakeDiscord, **changes: Any) -> DiscordSettings:
    at = {"api_url": fake.url, "cdn_url": fake.url}
    values = {"token": SecretStr(TOKEN), "public_key": KEY, **at, "allowed_users": (ANN,), **changes}
    return DiscordSettings(**values)


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeDiscord) -> Settings:
    return make_settings(discord=block(fake))


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((PAYLOADS / f"{name}.json").read_bytes())
    return found


_next_id = iter(range(1_450_000_000_000_000_000, 1_460_000_000_000_000_000))


def said(text: str, channel: str = DM, **beside: Any) -> dict[str, Any]:
    """Ann says something; in a guild, to the bot."""
    ann = {"id": ANN, "username": "annli", "global_name": "Ann", "discriminator": "0", "avatar": None}
    message = a_message(str(next(_next_id)), channel, text, ann)
    if channel == DM:
        return {**message, "channel_type": 1, **beside}
    return {**message, "guild_id": GUILD, "content": f"<@99> {text}", "mentions": [ME], **beside}


@dataclass
class Home:
    """The bot at work: it listens and answers."""

    pipe: Pipeline
    fake: FakeDiscord
    lines: list[Any]

    async def bring(self, *messages: dict[str, Any]) -> None:
        await self.fake.until(lambda fake: fake.live)
        for message in messages:
            await self.fake.happen("MESSAGE_CREATE", message)

    async def nothing_more(self) -> None:
        """What is brought now is answered, and nothing before it was."""
        before = sum(len(there) for there in self.fake.shown.values())
        await self.bring(said("the end"))
        await self.fake.until(lambda fake: "echo: the end" in fake.texts(DM))
        assert sum(len(there) for there in self.fake.shown.values()) == before + 1


@asynccontextmanager
async def listening(pipe: Pipeline) -> AsyncIterator[asyncio.Event]:
    stopping = asyncio.Event()
    running = asyncio.create_task(listen_on(pipe, "discord", stopping))
    try:
        yield stopping
    finally:
        stopping.set()
        await running


@asynccontextmanager
async def at_home(pipe: Pipeline, fake: FakeDiscord, agent: Agent | Answers | None = None) -> AsyncIterator[Home]:
    with capture_logs() as lines:
        async with listening(pipe), working(pipe, agent):
            yield Home(pipe, fake, lines)


@pytest.fixture
async def home(pipe: Pipeline, fake: FakeDiscord) -> AsyncIterator[Home]:
    async with at_home(pipe, fake) as opened:
        yield opened


def saying(*replies: Reply) -> Agent | Answers:
    class Saying:
        async def run(self, turn: Turn) -> Result:
            return Result((Entry("assistant", "said"),), replies)

    return Saying()


async def journaled(pipe: Pipeline, count: int) -> list[str]:
    """The texts of Ann's direct messages in their order, once there are so many."""
    async with asyncio.timeout(90):
        while len(rows := await pipe.store.journal.pending(f"agent:main:discord:dm:{DM}", after=0, limit=100)) < count:
            await asyncio.sleep(0.02)
    return [orjson.loads(row.payload)["inbound"]["text"] for row in rows]


# From the gateway's frame to the reply.


ANSWERED = [
    ("direct", DM, "echo: hello"),
    ("guild_mention", CHANNEL, "echo: status?"),
    ("guild_role_mention", CHANNEL, "echo: status?"),
    ("guild_reply_to_bot", CHANNEL, "echo: why?"),
    ("guild_attachment", CHANNEL, "echo: what is this?"),
    ("thread", THREAD, "echo: go on"),
    ("forum_post", POST, "echo: how?"),
]
LEFT = [
    "guild_unaddressed",
    "guild_everyone",
    "guild_other_role_mention",
    "guild_without_content",
    "edit",
    "own_message",
    "other_bots_message",
    "webhook_message",
    "webhook_message_without_bot_flag",
    "system_member_joined",
    "system_command_echo",
]


async def test_a_message_is_answered_where_it_was_said(
    home: Home, fake: FakeDiscord, subtests: pytest.Subtests
) -> None:
    await fake.until(lambda fake: fake.live)
    for name, channel, answer in ANSWERED:
        with subtests.test(name):
            event = payload(name)
            await fake.happen(event["t"], event["d"])
            await fake.until(lambda fake: fake.shown)
            [sent] = [call.fields for call in fake.calls if call.path.endswith("/messages")]
            [(place, _)] = fake.shown.items()
            pointing = {} if channel == DM else {"message_id": event["d"]["id"], "fail_if_not_exists": False}
            assert (place, sent["content"], sent.get("message_reference", {})) == (channel, answer, pointing)
            assert sent["allowed_mentions"] == {"parse": [], "replied_user": False}
            assert sent["enforce_nonce"] is True and 0 < len(sent["nonce"]) <= 25
        fake.forget()
    await home.nothing_more()


async def test_a_message_that_is_not_for_us_is_taken_and_not_answered(
    home: Home, fake: FakeDiscord, pipe: Pipeline, subtests: pytest.Subtests
) -> None:
    await fake.until(lambda fake: fake.live)
    for name in LEFT:
        with subtests.test(name):
            event = payload(name)
            await fake.happen(event["t"], event["d"])
    await home.nothing_more()
    assert len(await ask(pipe.store, "SELECT id FROM inbox")) == 1
    assert await pipe.store.dead.all(state="open", limit=10) == []


async def test_a_message_that_comes_twice_is_answered_once(home: Home, fake: FakeDiscord) -> None:
    once = said("once")
    await home.bring(once, once)
    await fake.until(lambda fake: fake.texts(DM))
    await home.bring(once)
    await home.nothing_more()
    assert fake.texts(DM) == ["echo: once", "echo: the end"]


async def test_a_thread_is_a_conversation_of_its_own_that_its_members_share(
    home: Home, fake: FakeDiscord, pipe: Pipeline
) -> None:
    await home.bring(said("a", THREAD, channel_type=11), said("b", CHANNEL, channel_type=0))
    await fake.until(lambda fake: fake.texts(THREAD) and fake.texts(CHANNEL))
    found = [
        await pipe.store.sessions.find(f"agent:main:discord:thread:{CHANNEL}:s={GUILD}:t={THREAD}"),
        await pipe.store.sessions.find(f"agent:main:discord:channel:{CHANNEL}:s={GUILD}:u={ANN}"),
    ]
    assert None not in found


async def test_a_thread_that_nobody_told_of_is_asked_for_once(home: Home, fake: FakeDiscord, pipe: Pipeline) -> None:
    unknown = "1330000000000000001"
    fake.channels[unknown] = {"id": unknown, "type": 11, "name": "late", "parent_id": CHANNEL}
    await fake.until(lambda fake: fake.live)
    fake.questions.append(Refused(502, 0, "bad gateway"))
    await home.bring(said("a", unknown, channel_type=11), said("b", unknown))
    await fake.until(lambda fake: len(fake.texts(unknown)) == 2)
    assert await pipe.store.sessions.find(f"agent:main:discord:thread:{CHANNEL}:s={GUILD}:t={unknown}") is not None
    assert len(fake.of(f"GET /channels/{unknown}")) == 2  # once in vain
    assert len(fake.begun) == 1


@pytest.mark.parametrize("trouble", [rate_limited(3600), Refused(502, 0, "bad gateway")])
async def test_a_thread_that_discord_does_not_tell_of_in_time_costs_neither_the_message_nor_the_connection(
    home: Home, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch, trouble: Refused
) -> None:
    monkeypatch.setattr(lookup, "ASKING_SECONDS", 0.5)
    monkeypatch.setattr(lookup, "SILENT_SECONDS", 3600)
    late, known = "1330000000000000002", f"agent:main:discord:thread:{CHANNEL}:s={GUILD}:t=1330000000000000002"
    fake.channels[late] = {"id": late, "type": 11, "name": "late", "parent_id": CHANNEL}
    await fake.until(lambda fake: fake.live)
    fake.questions.extend([trouble] * 1000)
    await home.bring(said("a", late, channel_type=11), said("b", late, channel_type=11), said("c"))
    await fake.until(lambda fake: len(fake.texts(late)) == 2 and fake.texts(DM) == ["echo: c"])
    asked = len(fake.of(f"GET /channels/{late}"))
    fake.questions.clear()
    await home.bring(said("d", late, channel_type=11))
    await fake.until(lambda fake: len(fake.texts(late)) == 3)
    assert (len(fake.of(f"GET /channels/{late}")), len(fake.begun)) == (asked, 1)  # not asked again at once
    assert await home.pipe.store.sessions.find(known) is None
    monkeypatch.setattr(lookup, "ASKING_SECONDS", 60)
    monkeypatch.setattr(lookup, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3601))
    await home.bring(said("e", late, channel_type=11))
    await fake.until(lambda fake: len(fake.texts(late)) == 4)
    assert await home.pipe.store.sessions.find(known) is not None


async def test_a_listener_that_takes_over_while_discord_answers_no_questions_hears_messages(
    pipe: Pipeline, fake: FakeDiscord
) -> None:
    async with listening(pipe):
        await fake.until(lambda fake: fake.live)
        await fake.happen("MESSAGE_CREATE", said("a"))
        await journaled(pipe, 1)
    fake.questions.append(rate_limited(3600))
    await fake.happen("MESSAGE_CREATE", said("b"))
    async with listening(pipe):
        assert await journaled(pipe, 2) == ["a", "b"]
    assert ([frame["op"] for frame in fake.begun], len(fake.of("GET /users/@me"))) == ([2, 6], 1)


async def test_a_thread_that_discord_does_not_show_is_a_place_of_its_own(home: Home, fake: FakeDiscord) -> None:
    await home.bring(said("a", "1340000000000000001", channel_type=11))
    await fake.until(lambda fake: fake.texts("1340000000000000001"))


async def test_in_a_group_the_agent_is_told_what_others_said_that_a_message_answers(
    pipe: Pipeline, fake: FakeDiscord
) -> None:
    heard: list[str] = []

    def hear(text: str) -> str:
        heard.append(text)
        return "heard"

    async with at_home(pipe, fake, FunctionAgent(hear)) as home:
        await home.bring(payload("guild_reply_to_other")["d"])
        await fake.until(lambda fake: fake.texts(CHANNEL))
    assert "bob: the disk is full @Ann" in heard[0] and heard[0].endswith("is this true?")


async def test_a_stranger_is_turned_away_and_the_log_says_whom_one_could_allow(home: Home, fake: FakeDiscord) -> None:
    stranger = said("let me in")
    stranger["author"] = {"id": "666", "username": ANN, "global_name": ANN}
    await home.bring(stranger)
    await fake.until(lambda fake: any("pairing code" in text for text in fake.texts(DM)))
    await home.nothing_more()
    [line] = [line for line in home.lines if line["event"] == "stranger turned away"]
    assert line["user"] == "666"


# The session of the gateway.


async def test_the_bot_identifies_with_the_text_of_messages_unless_told_otherwise(
    make_settings: MakeSettings, fake: FakeDiscord
) -> None:
    for wants, intents in ((True, 37377), (False, 4609)):
        async with open_pipeline(make_settings(discord=block(fake, message_content=wants))) as pipe, listening(pipe):
            await fake.until(lambda fake: fake.live)
        begun = [frame for frame in fake.begun if frame["op"] == 2][-1]["d"]
        assert (begun["token"], begun["intents"]) == (TOKEN, intents)
    assert [frame["op"] for frame in fake.begun] == [2, 2]  # a session that brings something else is not resumed


async def test_a_connection_that_is_cut_is_resumed_and_nothing_is_missed(home: Home, fake: FakeDiscord) -> None:
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM) == ["echo: a"])
    await fake.hang_up(4000)
    await fake.happen("MESSAGE_CREATE", said("while away"))
    await fake.until(lambda fake: fake.texts(DM) == ["echo: a", "echo: while away"])
    first, second = fake.begun
    assert (first["op"], second["op"]) == (2, 6)
    assert second["d"]["session_id"] == fake.links[0].session


async def test_discord_may_ask_for_another_connection(home: Home, fake: FakeDiscord) -> None:
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM) == ["echo: a"])
    await fake.say({"op": 7, "d": None, "s": None, "t": None})
    await fake.until(lambda fake: len(fake.begun) == 2 and fake.live and fake.links[0].closed_with is not None)
    assert fake.begun[1]["op"] == 6
    assert fake.links[0].closed_with not in (1000, 1001)  # these would end the session
    await home.nothing_more()


async def connected(fake: FakeDiscord, times: int) -> None:
    await fake.until(lambda fake: len(fake.begun) == times and len(fake.live) == 1)


async def test_connections_that_end_as_soon_as_they_are_resumed_follow_in_growing_distances(
    home: Home, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "STEADY_SECONDS", 3600.0)
    monkeypatch.setattr(gateway, "LONGEST_PAUSE", 0.05)
    for connection in range(1, 6):
        await connected(fake, connection)
        await fake.say({"op": 7, "d": None, "s": None, "t": None})
    await fake.until(lambda fake: len(fake.begun) == 6 and fake.live)
    ended = [line["next_in_seconds"] for line in home.lines if line["event"] == "the gateway's connection ended soon"]
    assert ended == [0.01, 0.02, 0.04, 0.05, 0.05]
    monkeypatch.setattr(gateway, "STEADY_SECONDS", 0.0)
    await fake.say({"op": 7, "d": None, "s": None, "t": None})
    await fake.until(lambda fake: len(fake.begun) == 7 and fake.live)
    await home.nothing_more()


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_invalid_session_is_resumed_or_begun_anew_as_discord_says(
    home: Home, fake: FakeDiscord, keeps: bool
) -> None:
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM) == ["echo: a"])
    await fake.say({"op": 9, "d": keeps, "s": None, "t": None})
    await fake.until(lambda fake: len(fake.begun) == 2 and len(fake.live) == 1)
    assert fake.begun[1]["op"] == (6 if keeps else 2)
    await home.nothing_more()


async def test_a_session_that_discord_has_forgotten_is_begun_anew(home: Home, fake: FakeDiscord) -> None:
    await fake.until(lambda fake: fake.live)
    fake.forget_sessions()
    await fake.hang_up(4000)
    await fake.until(lambda fake: [frame["op"] for frame in fake.begun] == [2, 6, 2] and fake.live)
    await home.nothing_more()


@pytest.mark.parametrize(("code", "op"), [(4000, 6), (4008, 6), (1001, 6), (4007, 2), (4009, 2)])
async def test_close_codes_say_whether_the_session_goes_on(home: Home, fake: FakeDiscord, code: int, op: int) -> None:
    await fake.until(lambda fake: fake.live)
    await fake.hang_up(code)
    await fake.until(lambda fake: len(fake.begun) == 2 and fake.live)
    assert fake.begun[1]["op"] == op
    await home.nothing_more()


@pytest.mark.parametrize("greeting", [4007, 4009, {"op": 9, "d": False}])
async def test_a_session_that_cannot_be_resumed_is_not_tried_again(
    home: Home, fake: FakeDiscord, greeting: int | dict[str, Any]
) -> None:
    """Though it is kept for whoever takes over."""
    await fake.until(lambda fake: fake.live)
    fake.greets_with.append(greeting)
    await fake.hang_up(4000)
    await fake.until(lambda fake: len(fake.begun) == 3 and fake.live)
    assert [frame["op"] for frame in fake.begun] == [2, 6, 2]
    await home.nothing_more()


class NoGateway:
    """Takes no connection, and notes where one was tried."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def websocket(self, url: str, _: object) -> Any:
        self.tried.append(url.partition("?")[0].rstrip("/"))
        raise Transient("no connection")


async def test_a_session_whose_address_does_not_answer_is_given_up_and_a_new_one_begins_elsewhere() -> None:
    async def nothing(_: object) -> None: ...

    client: Any = NoGateway()
    settings = DiscordSettings(token=SecretStr(TOKEN), gateway_url="wss://begins.example.org")
    held = gateway.Gateway(client, cast(DiscordApi, None), settings, nothing)
    held.position = Position("session", "wss://resumes.example.org", held.intents, 7)
    for _ in range(gateway.RESUME_TRIES + 2):
        with pytest.raises(Transient):
            await held.run()
    assert held.gone == "session"
    assert client.tried == ["wss://resumes.example.org"] * gateway.RESUME_TRIES + ["wss://begins.example.org"]


@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
async def test_a_refusal_that_no_new_connection_helps_against_is_waited_out(
    pipe: Pipeline, fake: FakeDiscord, code: int
) -> None:
    fake.greets_with.append(code)
    async with listen.open_connections(pipe) as [connection], AsyncExitStack() as stack:
        async with connection.connected():
            with pytest.raises(Denied) as refusal:
                await connection.next()
        with pytest.raises(RateLimited) as wait:
            await stack.enter_async_context(connection.connected())
    assert str(refusal.value) == gateway._FATAL[code]
    assert wait.value.retry_after > timedelta(minutes=9) and len(fake.begun) == 1


async def test_after_a_refusal_somebody_may_have_acted_on_it(
    pipe: Pipeline, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.listening.REFUSED_PAUSE", 0.05)
    monkeypatch.setattr(listen, "REFUSED_PAUSE", listen.REFUSED_PAUSE / 10_000)
    fake.greets_with.append(4014)
    async with at_home(pipe, fake) as home:
        await home.nothing_more()
    errors = [line["reason"] for line in home.lines if line["log_level"] == "error"]
    assert (errors, len(fake.begun)) == ([gateway._FATAL[4014]], 2)


async def test_heartbeats_carry_the_last_number_and_unanswered_ones_end_the_connection(
    home: Home, fake: FakeDiscord
) -> None:
    await fake.until(lambda fake: fake.live)
    fake.interval_ms = 100
    await fake.hang_up(4000)
    await fake.until(lambda fake: fake.links[-1].beats > 3)
    links = len(fake.links)
    fake.acknowledges = False
    await fake.until(lambda fake: len(fake.links) > links)
    fake.acknowledges = True
    await fake.until(lambda fake: fake.links[links - 1].closed_with is not None)
    assert fake.links[links - 1].closed_with not in (1000, 1001)
    assert [frame["op"] for frame in fake.begun][1:] == [6] * (len(fake.begun) - 1)
    await home.nothing_more()


async def test_a_heartbeat_that_discord_asks_for_is_sent_at_once(home: Home, fake: FakeDiscord) -> None:
    fake.interval_ms = 3_600_000
    await fake.hang_up(4000)
    await fake.until(lambda fake: fake.live)
    beats = fake.links[-1].beats
    await fake.say({"op": 1, "d": None, "s": None, "t": None})
    await fake.until(lambda fake: fake.links[-1].beats > beats)


async def test_when_no_session_may_begin_none_is_tried(pipe: Pipeline, fake: FakeDiscord) -> None:
    fake.remaining = 0
    async with listening(pipe):
        await fake.until(lambda fake: fake.of("GET /gateway/bot"))
        fake.remaining = 1
        assert fake.begun == []
        await fake.until(lambda fake: fake.live)


async def test_frames_that_make_no_sense_are_recorded_or_passed_over(home: Home, fake: FakeDiscord) -> None:
    await fake.until(lambda fake: fake.live)
    frames: list[Any] = [
        {"op": 99},
        {"op": "x"},
        {"op": 0, "t": None, "s": None, "d": None},
        "[]",
        "{",
        '{"op":0,"d":"\\ud800"}',
    ]
    for frame in frames:
        await fake.say(frame)
    await home.nothing_more()
    letters = await home.pipe.store.dead.all(state="open", limit=10)
    assert sorted(letter["reason"] for letter in letters) == ["malformed"] * 3
    assert len(fake.begun) == 1


async def test_a_listener_that_is_stopped_leaves_its_session_to_the_next(pipe: Pipeline, fake: FakeDiscord) -> None:
    async with listening(pipe):
        await fake.until(lambda fake: fake.live)
        await fake.happen("MESSAGE_CREATE", said("a"))
        await journaled(pipe, 1)
    await fake.happen("MESSAGE_CREATE", said("in between"))
    async with listening(pipe):
        assert await journaled(pipe, 2) == ["a", "in between"]
    assert [frame["op"] for frame in fake.begun] == [2, 6]
    assert fake.links[0].closed_with not in (1000, 1001)


@pytest.mark.parametrize("forged", ["the address is another's", "the whole record", "no address"])
async def test_a_position_that_somebody_else_wrote_to_redis_sends_the_token_nowhere(
    pipe: Pipeline, fake: FakeDiscord, forged: str
) -> None:
    name = keys.position("discord", "99")
    redis = pipe.servers.of_key(name).client
    async with listening(pipe):
        await fake.until(lambda fake: fake.live)
        await fake.happen("MESSAGE_CREATE", said("a"))
        await journaled(pipe, 1)
    async with open_discord() as thief:
        here, there = (one.url.removeprefix("http://").encode() for one in (fake, thief))
        kept = await redis.get(name)
        assert isinstance(kept, bytes)
        record = {"session": "s", "url": f"{thief.url.replace('http', 'ws')}/ws", "intents": 37377, "seq": 1}
        odd = kept.replace(b"ws://", b"ws://[")
        writes = {"the address is another's": kept.replace(here, there), "the whole record": orjson.dumps(record)}
        await redis.set(name, writes.get(forged, odd))
        async with listening(pipe):
            begun = [
                asyncio.create_task(fake.until(lambda fake: len(fake.begun) == 2 and fake.live)),
                asyncio.create_task(thief.until(lambda thief: thief.links)),
            ]
            await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
            await end_tasks(*begun)
        assert (thief.links, [frame["op"] for frame in fake.begun]) == ([], [2, 2])


@pytest.mark.parametrize("given", ["", "ws://[", "http://example.org", "nowhere"])
async def test_a_session_without_an_address_to_resume_it_is_resumed_where_it_began(
    pipe: Pipeline, fake: FakeDiscord, given: str
) -> None:
    fake.resume_url = given
    async with at_home(pipe, fake) as home:
        await fake.until(lambda fake: fake.live)
        await fake.hang_up(4000)
        await fake.until(lambda fake: len(fake.begun) == 2 and fake.live)
        assert [frame["op"] for frame in fake.begun] == [2, 6]
        await home.nothing_more()


async def test_a_listener_that_dies_before_it_has_kept_a_message_is_brought_it_again(
    pipe: Pipeline, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a message counts as seen when the message is on disk, and not before."""
    asked, killed = asyncio.Event(), asyncio.Event()

    async def die(*_: Any) -> None:
        asked.set()
        await killed.wait()
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr("producers.spool.Spool.keep", die)
        running = asyncio.create_task(listen_on(pipe, "discord", asyncio.Event()))
        await fake.until(lambda fake: fake.live)
        await fake.happen("MESSAGE_CREATE", said("a"))
        await asked.wait()
        running.cancel()
        killed.set()
        await asyncio.gather(running, return_exceptions=True)
    assert await ask(pipe.store, "SELECT id FROM inbox") == []
    async with listening(pipe):
        assert await journaled(pipe, 1) == ["a"]
    assert [frame["op"] for frame in fake.begun] == [2, 6]


async def test_while_the_journal_is_away_messages_are_kept_even_if_the_session_is_lost(
    pipe: Pipeline, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(here: str) -> None:
        if here == "accept.before_journal":
            raise Unavailable("the database is away")

    async with listening(pipe):
        await fake.until(lambda fake: fake.live)
        with monkeypatch.context() as patch:
            patch.setattr("shared.door.reach", away)
            await fake.happen("MESSAGE_CREATE", said("a"))
            await fake.happen("MESSAGE_CREATE", said("b"))
            fake.forget_sessions()
            await fake.hang_up(4009)
            await fake.until(lambda fake: len(fake.begun) == 2 and fake.live)
            await fake.happen("MESSAGE_CREATE", said("c"))
        assert await journaled(pipe, 3) == ["a", "b", "c"]


async def test_of_two_listeners_one_connects_and_the_other_takes_over(
    pipe: Pipeline, make_settings: MakeSettings, fake: FakeDiscord
) -> None:
    async with AsyncExitStack() as first, open_pipeline(make_settings(discord=block(fake))) as second:
        await first.enter_async_context(listening(pipe))
        await fake.until(lambda fake: fake.live)
        async with listening(second):
            await fake.happen("MESSAGE_CREATE", said("a"))
            await journaled(pipe, 1)
            assert len(fake.links) == 1
            await first.aclose()
            await fake.happen("MESSAGE_CREATE", said("b"))
            assert await journaled(second, 2) == ["a", "b"]
    assert [frame["op"] for frame in fake.begun] == [2, 6]


# Interactions.


@dataclass
class Hook:
    """Discord's side of the interactions webhook."""

    door: Door
    fake: FakeDiscord

    async def post(self, interaction: Any, key: SigningKey = SIGNING, ahead: int = 0) -> httpx.Response:
        body = interaction if isinstance(interaction, bytes) else orjson.dumps(interaction)
        at = str(int(time.time()) + ahead)
        signature = key.sign(at.encode() + body).signature.hex()
        headers = {"X-Signature-Ed25519": signature, "X-Signature-Timestamp": at}
        return await self.door.client.post("/webhooks/discord", content=body, headers=headers)

    async def bring(self, name: str) -> Any:
        interaction = payload(name)["d"]
        self.fake.originals[interaction["token"]] = {"type": 5}  # a worker may be faster than our answer
        response = await self.post(interaction)
        assert response.status_code == 200
        return response.json()


@pytest.fixture
async def hook(pipe: Pipeline, fake: FakeDiscord) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe):
        yield Hook(door, fake)


def original(fake: FakeDiscord, name: str) -> str | None:
    """What took the place of "thinking…", if anything has."""
    found = fake.originals.get(payload(name)["d"]["token"], {})
    return found.get("content")


async def test_a_signed_ping_is_answered_and_nobody_elses(hook: Hook) -> None:
    assert await hook.bring("ping") == {"type": 1}
    response = await hook.post(payload("ping")["d"], SigningKey(b"2" * 32))
    assert (response.status_code, response.json()) == (401, {"error": "not authorised"})
    assert (await hook.post(payload("ping")["d"], ahead=-400)).status_code == 401


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("command_ask", "echo: what is up?"),
        ("command_ask_in_direct", "echo: hello"),
        ("command_ask_in_thread", "echo: and here?"),
        ("command_ask_among_others", "echo: hi"),
        ("command_ask_with_file", "echo: look"),
    ],
)
async def test_a_command_is_answered_in_the_place_of_thinking(
    hook: Hook, fake: FakeDiscord, name: str, answer: str
) -> None:
    assert await hook.bring(name) == {"type": 5}
    await fake.until(lambda fake: original(fake, name) == answer)
    assert fake.shown == {}
    [call] = [call for call in fake.calls if call.method == "PATCH"]
    assert "Authorization" not in call.headers  # the interaction's own token is the permission


async def test_our_own_commands_can_be_given_as_slash_commands(hook: Hook, fake: FakeDiscord) -> None:
    await hook.bring("command_status")
    await fake.until(lambda fake: original(fake, "command_status"))
    assert not str(original(fake, "command_status")).startswith("echo")


async def test_what_is_no_command_is_acknowledged_and_nothing_follows(hook: Hook) -> None:
    assert await hook.bring("component") == {"type": 6}
    assert (await hook.bring("autocomplete"))["type"] == 8
    assert [(await hook.bring(name))["type"] for name in ("modal", "command_from_menu", "command_ask_nothing")] == [
        4
    ] * 3
    assert not any((await hook.door.stored()).values())


async def test_a_stranger_hears_at_once_that_nobody_will_answer(hook: Hook) -> None:
    interaction = payload("command_ask")["d"]
    interaction["member"]["user"]["id"] = "666"
    response = (await hook.post(interaction)).json()
    assert (response["type"], response["data"]["content"], response["data"]["flags"]) == (4, NOT_ALLOWED, 64)
    assert not any((await hook.door.stored()).values())


async def test_an_interaction_that_comes_twice_is_answered_once(hook: Hook, fake: FakeDiscord) -> None:
    await hook.bring("command_ask")
    await hook.bring("command_ask")
    await fake.until(lambda fake: original(fake, "command_ask") == "echo: what is up?")
    assert len([call for call in fake.calls if call.method == "PATCH"]) == 1


async def test_an_interaction_that_cannot_be_understood_is_taken_and_recorded(hook: Hook) -> None:
    for body in (b"{", b"[]", orjson.dumps({**payload("command_ask")["d"], "data": 5})):
        response = await hook.post(body)
        assert (response.status_code, response.json()["type"]) == (200, 4)
    assert (await hook.door.stored())["dead"] == 3


async def test_a_long_answer_goes_on_in_the_channel(pipe: Pipeline, fake: FakeDiscord) -> None:
    async with open_door(pipe) as door, working(pipe, saying(Reply("word " * 1000))):
        await Hook(door, fake).bring("command_ask")
        await fake.until(lambda fake: len(fake.texts(CHANNEL)) == 2)
    assert str(original(fake, "command_ask")).endswith("(1/3)")
    assert [text[-5:] for text in fake.texts(CHANNEL)] == ["(2/3)", "(3/3)"]


async def test_where_the_bot_is_not_in_the_channel_a_long_answer_follows_up(pipe: Pipeline, fake: FakeDiscord) -> None:
    fake.absent.add(CHANNEL)
    async with open_door(pipe) as door, working(pipe, saying(Reply("word " * 1000))):
        await Hook(door, fake).bring("command_ask")
        await fake.until(lambda fake: len(fake.texts("followed")) == 2)
    assert [text[-5:] for text in fake.texts("followed")] == ["(2/3)", "(3/3)"]


async def test_an_answer_that_comes_too_late_for_its_interaction_is_said_in_the_channel(
    hook: Hook, fake: FakeDiscord
) -> None:
    assert (await hook.post(payload("command_ask")["d"])).json() == {"type": 5}  # and Discord forgets it
    await fake.until(lambda fake: fake.texts(CHANNEL) == ["echo: what is up?"])


async def test_interactions_may_come_by_the_gateway(home: Home, fake: FakeDiscord) -> None:
    await fake.until(lambda fake: fake.live)
    stranger = payload("command_ask_in_thread")["d"]
    stranger["member"]["user"]["id"] = "666"
    for interaction in (payload("command_ask")["d"], payload("component")["d"], stranger):
        await fake.happen("INTERACTION_CREATE", interaction)
    await fake.until(lambda fake: fake.originals.get(stranger["token"]))
    await fake.until(lambda fake: fake.originals.get(payload("component")["d"]["token"]) == {"type": 6})
    await fake.until(
        lambda fake: original(fake, "command_ask") == "echo: what is up?" or fake.texts(CHANNEL)
    )  # an answer that is faster than "thinking…" is said in the channel
    assert fake.originals[stranger["token"]]["data"]["content"] == NOT_ALLOWED
    await home.nothing_more()


async def test_who_was_let_in_by_a_code_hears_by_the_gateway_that_an_answer_is_coming(
    home: Home, fake: FakeDiscord, pipe: Pipeline
) -> None:
    await write(pipe.store, "INSERT INTO paired VALUES ('discord', '777', NULL, 'Bob', 'op', 1)")
    await fake.until(lambda fake: fake.live)
    paired = payload("command_ask")["d"]
    paired["member"]["user"]["id"] = "777"
    await fake.happen("INTERACTION_CREATE", paired)
    await fake.until(lambda fake: any(call.path.endswith("/callback") for call in fake.calls))
    [told] = [call for call in fake.calls if call.path.endswith("/callback")]
    assert told.fields == {"type": 5}


# What is sent.


async def test_code_that_is_cut_is_closed_and_opened_again_and_no_part_is_too_long(
    pipe: Pipeline, fake: FakeDiscord
) -> None:
    lines = [f"print({n})  # 🙂" for n in range(300)]
    text = "Look:\n```py\n" + "\n".join(lines) + "\n```\ndone"
    async with at_home(pipe, fake, saying(Reply(text), Reply("and done"))) as home:
        await home.bring(said("go"))
        await fake.until(lambda fake: "and done" in fake.texts(DM))
    *parts, _ = fake.texts(DM)
    assert len(parts) > 2 and all(len(part.encode("utf-16-le")) // 2 <= 2000 for part in parts)
    assert all(part.count("```") == 2 for part in parts)
    assert [line for part in parts for line in part.split("\n") if line.startswith("print")] == lines


async def test_only_the_first_part_of_an_answer_points_at_what_it_answers(pipe: Pipeline, fake: FakeDiscord) -> None:
    async with at_home(pipe, fake, saying(Reply("word " * 1000), Reply("and done"))) as home:
        await home.bring(said("go", CHANNEL, channel_type=0))
        await fake.until(lambda fake: "and done" in fake.texts(CHANNEL))
    first, *others = fake.sent(CHANNEL)
    assert "message_reference" in first and not any("message_reference" in sent for sent in others)
    assert len({sent["nonce"] for sent in (first, *others)}) == len(others) + 1


async def test_files_are_sent_as_links_and_texts_without_previews(pipe: Pipeline, fake: FakeDiscord) -> None:
    files = (Media("https://x.example/a.png", "image/png"), Media("tg-file:abc", "image/png"))
    async with at_home(pipe, fake, saying(Reply("see https://x.example", files))) as home:
        await home.bring(said("go"))
        await fake.until(lambda fake: len(fake.texts(DM)) == 2)
        async with asyncio.timeout(90):
            while not (letters := await pipe.store.dead.all(state="open", limit=10)):
                await asyncio.sleep(0.02)
    text, link = fake.sent(DM)
    assert (text["flags"], link["content"], "flags" in link) == (4, "https://x.example/a.png", False)
    assert "without a web address" in letters[0]["detail"]


async def test_a_message_of_ours_is_changed_later_by_its_receipt(pipe: Pipeline, fake: FakeDiscord) -> None:
    class Drafting:
        async def run(self, turn: Turn) -> Result:
            if turn.mail[-1].text == "begin":
                return Result((Entry("assistant", "draft"),), (Reply("draft"),))
            return Result((Entry("assistant", "final"),), (Reply("final", edits=fake.shown[DM][0]["id"]),))

    async with at_home(pipe, fake, Drafting()) as home:
        await home.bring(said("begin"))
        await fake.until(lambda fake: fake.texts(DM) == ["draft"])
        await home.bring(said("end"))
        await fake.until(lambda fake: fake.texts(DM) == ["final"])


async def test_after_429_the_channel_waits_as_long_as_discord_says(home: Home, fake: FakeDiscord) -> None:
    fake.trouble.append(rate_limited(1.25))
    await home.bring(said("a"), said("b"))
    await fake.until(lambda fake: len(fake.texts(DM)) == 2)
    assert fake.texts(DM) == ["echo: a", "echo: b"]  # in order, although the first had to wait
    times = [call.at for call in fake.calls if call.name == f"POST /channels/{DM}/messages"]
    assert times[1] - times[0] > 1.2


async def test_after_a_429_for_everything_no_channel_is_asked(home: Home, fake: FakeDiscord) -> None:
    fake.trouble.append(rate_limited(1.25, everywhere=True))
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.sent(DM))
    refused = time.monotonic()
    await home.bring(said("b", CHANNEL, channel_type=0))
    await fake.until(lambda fake: fake.texts(DM) and fake.texts(CHANNEL))
    [first] = [call.at for call in fake.calls if call.name == f"POST /channels/{CHANNEL}/messages"]
    assert first - refused > 1.0


async def test_a_channel_whose_headers_say_that_it_is_exhausted_is_not_asked(home: Home, fake: FakeDiscord) -> None:
    fake.headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "1.25", "X-RateLimit-Bucket": "b"}
    await home.bring(said("a"), said("b"))
    await fake.until(lambda fake: len(fake.texts(DM)) == 2)
    times = [call.at for call in fake.calls if call.name == f"POST /channels/{DM}/messages"]
    assert len(times) == 2 and times[1] - times[0] > 1.2


async def test_slow_mode_is_waited_for(home: Home, fake: FakeDiscord) -> None:
    fake.trouble.append(Refused(400, 20016, "This action cannot be performed due to slowmode", retry_after=0.5))
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM) == ["echo: a"])


@pytest.mark.parametrize("code", [10003, 10008, 40005, 50001, 50006, 50007, 50013, 160005, 200000])
async def test_what_is_refused_for_good_costs_its_reply_and_nobody_elses(
    home: Home, fake: FakeDiscord, code: int
) -> None:
    fake.trouble.append(Refused(403, code, "refused"))
    await home.bring(said("a"))
    async with asyncio.timeout(90):
        while not (dead := await home.pipe.store.dead.all(state="open", limit=10)):
            await asyncio.sleep(0.02)
    assert (dead[0]["kind"], dead[0]["reason"]) == ("reply", "refused") and str(code) in dead[0]["detail"]
    await home.nothing_more()


async def test_a_page_from_a_proxy_is_no_answer_and_the_part_is_sent_again(home: Home, fake: FakeDiscord) -> None:
    fake.trouble.extend([Trouble.PAGE, Refused(500, 0, "internal"), Refused(400, 130000, "overloaded")])
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM))
    assert (fake.texts(DM), len(fake.sent(DM))) == (["echo: a"], 4)


@pytest.mark.parametrize("policy", [True, False])
async def test_a_send_whose_answer_is_lost_is_repeated_and_shown_once(
    make_settings: MakeSettings, fake: FakeDiscord, policy: bool
) -> None:
    fake.trouble.append(Trouble.CUT)
    async with (
        open_pipeline(make_settings(discord=block(fake), resend_ambiguous=policy)) as pipe,
        at_home(pipe, fake) as home,
    ):
        await home.bring(said("a"), said("b"))
        await fake.until(lambda fake: "echo: b" in fake.texts(DM))
    assert fake.texts(DM) == ["echo: a", "echo: b"]
    nonces = [sent["nonce"] for sent in fake.sent(DM)]
    assert len(nonces) == 3 and nonces[0] == nonces[1] != nonces[2]


async def test_an_archived_thread_is_woken(home: Home, fake: FakeDiscord) -> None:
    fake.archived.add(THREAD)
    await home.bring(said("a", THREAD, channel_type=11))
    await fake.until(lambda fake: fake.texts(THREAD) == ["echo: a"])
    assert fake.of(f"PATCH /channels/{THREAD}") == [{"archived": False}]


@pytest.mark.parametrize("code", [50035, 160002])
async def test_an_answer_that_may_not_point_at_its_question_is_said_without(
    home: Home, fake: FakeDiscord, code: int
) -> None:
    fake.trouble.append(Refused(400, code, "cannot reply"))
    await home.bring(said("a", CHANNEL, channel_type=0))
    await fake.until(lambda fake: fake.texts(CHANNEL) == ["echo: a"])
    assert ["message_reference" in sent for sent in fake.sent(CHANNEL)] == [True, False]


async def test_the_chat_sees_that_an_answer_is_coming(pipe: Pipeline, fake: FakeDiscord) -> None:
    async def slow(text: str) -> str:
        await fake.until(lambda fake: fake.of(f"POST /channels/{THREAD}/typing"))
        return "done"

    async with at_home(pipe, fake, FunctionAgent(slow)) as home:
        await home.bring(said("a", THREAD, channel_type=11))
        await fake.until(lambda fake: fake.texts(THREAD) == ["done"])


async def test_tokens_are_in_no_line_and_no_record(
    hook: Hook, fake: FakeDiscord, caplog: pytest.LogCaptureFixture
) -> None:
    fake.trouble.extend([Trouble.PAGE, Refused(400, 50035, "no"), Trouble.CUT])
    with caplog.at_level(logging.DEBUG):
        await hook.bring("command_ask")
        await fake.until(lambda fake: fake.texts(CHANNEL))
    records = [record for record in caplog.records if not record.name.startswith("aiohttp")]
    text = repr([(record.getMessage(), record.exc_text) for record in records]) + repr(hook.door.lines)
    assert "/webhooks/99/…/messages/@original" in text  # it was logged, but not with what it really is
    for canary in (TOKEN, TOKEN.rpartition(".")[2], payload("command_ask")["d"]["token"]):
        assert canary not in text


async def test_every_request_says_who_asks_in_the_form_that_discord_wants(home: Home, fake: FakeDiscord) -> None:
    await home.bring(said("a"))
    await fake.until(lambda fake: fake.texts(DM))
    assert all(call.headers["User-Agent"].startswith("DiscordBot (") for call in fake.calls)


# As processes.


async def test_keyturn_listen_and_work_are_all_it_takes(
    fake: FakeDiscord, tmp_path: Path, redis_url: str, database_url: str
) -> None:
    values = {"discord__token": TOKEN, "discord__api_url": fake.url, "discord__allowed_users": ANN}
    told = Told(tmp_path, redis_url, database_url, **values)
    try:
        listener = told.run("-m", "keyturn.cli", "listen", "discord")
        told.work()
        await fake.until(lambda fake: fake.live)
        await fake.happen("MESSAGE_CREATE", said("now hello"))
        await fake.until(lambda fake: fake.texts(DM) == ["done now hello"])
        listener.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            while listener.poll() is None:
                await asyncio.sleep(0.02)
        assert listener.returncode == 0, told.log()
        assert TOKEN.rpartition(".")[2] not in told.log()
    finally:
        told.close()


# And another's word for it.


async def test_discord_py_reads_what_we_sent_and_would_send_it_the_same_way(home: Home, fake: FakeDiscord) -> None:
    await home.bring(said("**a**", CHANNEL, channel_type=0))
    await fake.until(lambda fake: fake.texts(CHANNEL))
    [sent], [shown] = fake.sent(CHANNEL), fake.shown[CHANNEL]
    state = discord.Client(intents=discord.Intents.none())._connection
    channel = discord.PartialMessageable(state=state, id=int(CHANNEL))
    message = discord.Message(state=state, channel=channel, data=shown)  # type: ignore[arg-type]
    assert (message.content, message.type, message.flags.suppress_embeds) == (
        "echo: **a**",
        discord.MessageType.reply,
        True,
    )
    assert (
        message.reference is not None and str(message.reference.message_id) == sent["message_reference"]["message_id"]
    )
    reference: Any = {**sent["message_reference"], "channel_id": CHANNEL}
    with discord.http.handle_message_parameters(
        content=sent["content"],
        nonce=sent["nonce"],
        flags=discord.MessageFlags(suppress_embeds=True),
        allowed_mentions=discord.AllowedMentions.none(),
        message_reference=reference,
    ) as parameters:
        theirs = parameters.payload
    assert theirs is not None
    for field in ("content", "nonce", "enforce_nonce", "flags"):
        assert theirs[field] == sent[field]
    assert theirs["allowed_mentions"]["parse"] == sent["allowed_mentions"]["parse"] == []

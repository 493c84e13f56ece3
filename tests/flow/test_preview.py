"""Answers that appear in the chat while they are written: real Valkey, a real worker, a local Slack and a local Telegram."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from shared.agent.events import Delta, Done, Event, Restarted, Row
from shared.agent.turn import Turn
from shared.context.marks import NAME, TOOL_CALL_ID, TOOL_CALLS
from shared.errors import Outage
from shared.failpoints import Injected
from shared.messages import Entry, Reply
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms import PLATFORMS
from shared.platforms.facts import PreviewLimits
from shared.platforms.slack import SlackSettings
from shared.settings import Settings
from tests.flow import test_telegram as telegram
from tests.flow.test_slack import ANN, DIRECT, Hook, said
from tests.store.books import ask, write
from tests.support.door import open_door
from tests.support.servers import Databases
from tests.support.slack import BOT_TOKEN, SIGNING_SECRET, FakeSlack, Refused, open_slack
from tests.support.telegram import open_telegram
from tests.support.working import working
from workers.delivery import preview
from workers.turn.conclude import NOTICE

MakeSettings = Callable[..., Settings]
FIRST, SECOND, THIRD = "Once upon a time there was a queue. ", "It kept every message in order.", " The end."
CALL = "(a tool call)"  # a piece that ends a row and calls a tool


class Writing:
    """Writes what the test gives it, piece by piece. None ends the answer; an error is raised."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | Restarted | Exception | None] = asyncio.Queue()
        self.attempts = 0
        self.whole = ""  # what the next attempt answers at once

    def write(self, *pieces: str | Restarted | Exception | None) -> None:
        for piece in pieces:
            self.pieces.put_nowait(piece)

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.attempts += 1
        if self.whole:
            yield Done((Reply(self.whole),))
            return
        text = ""
        while (piece := await self.pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, Restarted):
                text = ""
                yield piece
                continue
            if piece == CALL:
                made = [{"id": "c1", "name": "look", "arguments": "{}"}]
                yield Row(Entry("assistant", text, data={TOOL_CALLS: made}))
                yield Row(Entry("tool", "seen", data={TOOL_CALL_ID: "c1", NAME: "look"}))
                text = ""
                continue
            text += piece
            yield Delta(piece)
        yield Row(Entry("assistant", text))
        yield Done((Reply(text),))


@pytest.fixture
def database_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with open_slack() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeSlack) -> Settings:
    return make_settings(slack=block(fake), backoff_seconds=0.05)


def block(fake: FakeSlack) -> SlackSettings:
    return SlackSettings(
        bot_token=SecretStr(BOT_TOKEN),
        api_url=fake.url,
        allowed_users=(ANN,),
        signing_secret=(SecretStr(SIGNING_SECRET),),
    )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {name: replace(facts, preview=facts.preview and PreviewLimits(0.02)) for name, facts in PLATFORMS.items()}
    monkeypatch.setattr(preview, "PLATFORMS", facts)
    monkeypatch.setattr("workers.delivery.telegram.TelegramSenders.draft_seconds", 0.02)


@asynccontextmanager
async def writing(pipe: Pipeline, fake: FakeSlack) -> AsyncIterator[tuple[Hook, Writing]]:
    agent = Writing()
    async with open_door(pipe) as door, working(pipe, agent):
        yield Hook(door, fake), agent


def shows(text: str) -> Callable[[FakeSlack], bool]:
    return lambda fake: fake.texts(DIRECT) == [text]


async def begin_a_story(hook: Hook, agent: Writing) -> None:
    """The chat shows the first words of an answer that is being written."""
    await hook.bring(said("tell me a story"))
    agent.write(FIRST)
    await hook.fake.until(shows(FIRST.strip() + " …"))


async def until_heard(agent: Writing) -> None:
    """The agent has said all that the test wrote, and the preview has had time for several looks at it."""
    async with asyncio.timeout(60):
        while not agent.pieces.empty():
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)


async def test_an_answer_appears_while_it_is_written_and_is_finished_in_its_place(
    pipe: Pipeline, fake: FakeSlack
) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(SECOND)
        await fake.until(shows((FIRST + SECOND).strip() + " …"))
        agent.write(THIRD, None)
        await fake.until(shows(FIRST + SECOND + THIRD))
        agent.write("short", None)
        await hook.bring(said("the end"))
        await fake.until(lambda fake: "short" in fake.texts(DIRECT))
    assert len(fake.of("chat.postMessage")) == 2
    [row] = await ask(pipe.store, "SELECT COUNT(*) AS n FROM messages WHERE role = 'assistant'")
    assert row["n"] == 2


async def test_an_answer_that_begins_again_takes_the_place_of_what_was_shown(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(Restarted(), SECOND)
        await fake.until(shows(SECOND + " …"))
        agent.write(THIRD, None)
        await fake.until(shows(SECOND + THIRD))
    assert len(fake.of("chat.postMessage")) == 1


async def test_M13_nothing_is_shown_before_there_is_something_to_read(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await hook.bring(said("tell me a story"))
        agent.write("Once", " ", "\n\n")
        await until_heard(agent)
        assert fake.texts(DIRECT) == []
        agent.write(FIRST)
        await fake.until(lambda fake: fake.texts(DIRECT))
        assert fake.texts(DIRECT) == [f"Once \n\n{FIRST.strip()} …"]
        agent.write(None)
        await fake.until(shows(f"Once \n\n{FIRST}"))


async def test_text_before_a_tool_call_gives_way_to_the_answer_in_the_same_message(
    pipe: Pipeline, fake: FakeSlack
) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(CALL, SECOND)
        await fake.until(shows(SECOND + " …"))
        agent.write(None)
        await fake.until(shows(SECOND))
        [row] = await ask(pipe.store, "SELECT COUNT(*) AS n FROM messages WHERE role = 'assistant'")
    assert (row["n"], len(fake.of("chat.postMessage"))) == (2, 1)


async def test_M16_what_is_shown_already_is_not_sent_again_and_the_finished_answer_is_one_change(
    pipe: Pipeline, fake: FakeSlack
) -> None:
    """The last change takes away the sign that more is coming."""
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(" ", "\n")  # nothing that a reader would see
        await until_heard(agent)
        assert fake.of("chat.update") == []
        agent.write(None)
        await fake.until(shows(f"{FIRST} \n"))
        await hook.bring(said("the end"))
        agent.write("short", None)
        await fake.until(lambda fake: "short" in fake.texts(DIRECT))
    assert (len(fake.of("chat.postMessage")), len(fake.of("chat.update"))) == (2, 1)


async def test_an_answer_that_is_finished_at_once_is_sent_as_always(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        agent.write(FIRST + SECOND, None)
        await hook.bring(said("quick"))
        await fake.until(shows((FIRST + SECOND).strip()))
    assert len(fake.of("chat.postMessage")) + len(fake.of("chat.update")) <= 2  # it may have been seen in the making


async def test_an_attempt_that_fails_leaves_a_draft_that_the_next_one_goes_on_with(
    pipe: Pipeline, fake: FakeSlack
) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(RuntimeError("the model fell over"), SECOND)
        await fake.until(shows(SECOND.strip() + " …"))
        agent.write(None)
        await fake.until(shows(SECOND.strip()))
    assert (agent.attempts, len(fake.of("chat.postMessage"))) == (2, 1)


async def test_an_answer_at_once_takes_the_place_of_the_draft_of_an_attempt_that_did_not_count(
    pipe: Pipeline, fake: FakeSlack
) -> None:
    """An outage of the provider gives the attempt back: the next one is the first again."""
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.whole = "all of it at once"
        agent.write(Outage("away", provider="test", status=503))
        await fake.until(shows("all of it at once"))
    assert (agent.attempts, len(fake.of("chat.postMessage"))) == (2, 1)


async def test_a_draft_that_is_added_when_its_answer_was_committed_is_not_sent(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(None)
        await fake.until(shows(FIRST))
        [row] = await ask(pipe.store, "SELECT destination FROM outbox LIMIT 1")
        late = await write(
            pipe.store,
            "INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state,"
            " created_at) SELECT 'out_draft_' || inbox.id || '_2', 'draft_' || inbox.id, 2, outbox.session_key, destination,"
            " outbox.platform, outbox.payload, 'pending', created_at FROM outbox JOIN inbox ON outbox.turn_id = 'draft_' ||"
            " inbox.id RETURNING id",
        )
        await pipe.deliveries.put(row["destination"], late[0]["id"], b"")
        await hook.bring(said("another"))
        agent.write("yes", None)
        await fake.until(lambda fake: "yes" in fake.texts(DIRECT))
    assert fake.texts(DIRECT) == [FIRST, "yes"]


async def test_a_message_that_is_given_up_tells_so_in_the_place_of_its_draft(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(*[RuntimeError("the model fell over")] * 3)
        await fake.until(shows(NOTICE))
    assert len(fake.of("chat.postMessage")) == 1


async def test_what_was_said_when_a_turn_is_stopped_stays_in_the_chat(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        agent.write(SECOND)
        await fake.until(shows((FIRST + SECOND).strip() + " …"))
        await hook.bring(said("/stop"))
        await fake.until(
            lambda fake: len(fake.texts(DIRECT)) == 2 and fake.texts(DIRECT)[0] == (FIRST + SECOND).strip()
        )
    rows = await ask(pipe.store, "SELECT text FROM messages WHERE role = 'assistant' ORDER BY n")
    assert rows[0]["text"] == (FIRST + SECOND).strip()


async def test_a_platform_that_refuses_changes_gets_the_finished_answer_once(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        fake.trouble.append(Refused("cant_update_message"))
        agent.write(SECOND)
        await fake.until(lambda fake: not fake.trouble)
        agent.write(THIRD, None)
        await fake.until(shows(FIRST + SECOND + THIRD))
    assert len(fake.of("chat.postMessage")) == 1


async def test_a_platform_that_asks_for_a_pause_is_left_alone_and_loses_nothing(
    pipe: Pipeline, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the finished answer waits for as long as the platform asked, when it was asked because of a preview."""
    monkeypatch.setattr(preview, "LONGEST_WAIT", timedelta(0))
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        fake.trouble.append(Refused("ratelimited", 429, 2))
        agent.write(SECOND)
        await fake.until(lambda fake: not fake.trouble)
        asked, told_at = len(fake.of("chat.update")), time.monotonic()
        agent.write(THIRD, None)
        await fake.until(shows(FIRST + SECOND + THIRD))
    assert len(fake.of("chat.update")) == asked + 1 and time.monotonic() - told_at > 1.8


@pytest.mark.parametrize("error", ["edit_window_closed", "message_not_found"])
async def test_M15_of_a_draft_that_cannot_be_changed_any_more_only_the_missing_rest_is_sent_and_of_a_lost_one_all(
    pipe: Pipeline, fake: FakeSlack, error: str
) -> None:
    async with writing(pipe, fake) as (hook, agent):
        await begin_a_story(hook, agent)
        fake.failing["chat.update"] = Refused(error)
        agent.write(SECOND, THIRD, None)
        await fake.until(lambda fake: len(fake.texts(DIRECT)) == 2)
    rest = SECOND + THIRD if error == "edit_window_closed" else FIRST + SECOND + THIRD
    assert fake.texts(DIRECT) == [FIRST.strip() + " …", rest]


async def test_where_the_setting_says_so_answers_appear_when_they_are_finished(
    make_settings: MakeSettings, fake: FakeSlack
) -> None:
    settings = make_settings(slack=block(fake), show_while_written=False)
    async with open_pipeline(settings) as pipe, writing(pipe, fake) as (hook, agent):
        await hook.bring(said("tell me a story"))
        agent.write(FIRST, SECOND, THIRD, None)
        await fake.until(shows(FIRST + SECOND + THIRD))
    assert (len(fake.of("chat.postMessage")), len(fake.of("chat.update"))) == (1, 0)


async def test_a_draft_that_the_chat_never_got_costs_the_answer_nothing(pipe: Pipeline, fake: FakeSlack) -> None:
    async with writing(pipe, fake) as (hook, agent):
        fake.trouble.append(Refused("restricted_action"))
        await hook.bring(said("tell me a story"))
        agent.write(FIRST)
        await fake.until(lambda fake: not fake.trouble)
        agent.write(SECOND, None)
        await fake.until(shows((FIRST + SECOND).strip()))


@pytest.mark.parametrize(
    "point", ["preview.before_open", "preview.after_open", "preview.before_change", "preview.after_change"]
)
async def test_a_preview_that_breaks_ends_and_the_answer_comes_once(
    pipe: Pipeline, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch, point: str, foreseen: Callable[[str], None]
) -> None:
    foreseen("preview")
    reached = asyncio.Event()

    def broken(here: str) -> None:
        if here == point:
            reached.set()
            raise Injected(point)

    monkeypatch.setattr(preview, "reach", broken)
    async with writing(pipe, fake) as (hook, agent):
        await hook.bring(said("tell me a story"))
        agent.write(FIRST)
        if point.endswith("_change"):
            await fake.until(shows(FIRST.strip() + " …"))
            agent.write(SECOND)
        await reached.wait()
        agent.write(*([] if point.endswith("_change") else [SECOND]), None)
        await fake.until(shows((FIRST + SECOND).strip()))
        await hook.bring(said("another"))
        agent.write("yes", None)
        await fake.until(lambda fake: "yes" in fake.texts(DIRECT))
    assert fake.texts(DIRECT) == [(FIRST + SECOND).strip(), "yes"]


# Telegram: private chats have a preview of their own, groups get a message that is changed.


@asynccontextmanager
async def writing_on_telegram(make_settings: MakeSettings) -> AsyncIterator[tuple[telegram.Hook, Writing]]:
    async with open_telegram() as there:
        secret = (SecretStr(telegram.SECRET),)
        settings = make_settings(telegram=telegram.block(there, webhook_secret=secret))
        async with open_pipeline(settings) as pipe:
            agent = Writing()
            async with open_door(pipe) as door, working(pipe, agent):
                yield telegram.Hook(door, there), agent


async def test_in_a_private_chat_telegram_previews_the_answer_and_gets_one_message(make_settings: MakeSettings) -> None:
    async with writing_on_telegram(make_settings) as (hook, agent):
        await hook.bring(telegram.said("tell me a story"))
        agent.write(FIRST)
        await hook.fake.until(lambda fake: fake.of("sendMessageDraft"))
        agent.write(SECOND)
        await hook.fake.until(lambda fake: len(fake.of("sendMessageDraft")) > 1)
        agent.write(None)
        await hook.fake.until(lambda fake: fake.texts(telegram.ANN) == [(FIRST + SECOND).strip()])
        first, *others = hook.fake.of("sendMessageDraft")
    assert first["text"] == FIRST.strip() + " …"
    assert {draft["draft_id"] for draft in others} == {first["draft_id"]}
    assert (len(hook.fake.of("sendMessage")), len(hook.fake.of("editMessageText"))) == (1, 0)


async def test_in_a_group_telegram_gets_a_message_that_becomes_the_answer(make_settings: MakeSettings) -> None:
    async with writing_on_telegram(make_settings) as (hook, agent):
        await hook.bring(telegram.said("tell us a story", telegram.GROUP))
        agent.write(FIRST)
        await hook.fake.until(lambda fake: fake.texts(telegram.GROUP) == [FIRST.strip() + " …"])
        agent.write(SECOND, None)
        await hook.fake.until(lambda fake: fake.texts(telegram.GROUP) == [(FIRST + SECOND).strip()])
    assert len(hook.fake.of("sendMessage")) == 1

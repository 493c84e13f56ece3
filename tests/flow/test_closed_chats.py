"""Chats that take nothing from us any more: remembered, spared, and open again when somebody there hears an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from shared.announcing import Announcement, TargetOutcome, announce
from shared.pipeline import Pipeline
from shared.platforms.telegram import TelegramSettings
from shared.settings import Settings
from shared.targets import parse_targets
from tests.store.books import ask, write
from tests.support.pipe import Rig
from tests.support.place import PATIENCE_SECONDS
from tests.support.telegram import TOKEN, FakeTelegram, open_telegram
from tests.support.working import working

ANN, GROUP = 11, -1001500
BLOCKED = "HTTP 403: Forbidden: bot was blocked by the user"


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: Callable[..., Settings], fake: FakeTelegram) -> Settings:
    block = TelegramSettings(token=SecretStr(TOKEN), api_url=fake.url, allowed_users=(str(ANN),), enabled=True)
    return make_settings(telegram=block)


async def send(pipe: Pipeline, text: str, target: str = f"telegram:{ANN}") -> TargetOutcome:
    [told] = await announce(pipe, Announcement(text, "test", text), parse_targets([target]))
    return told


async def buried(pipe: Pipeline, count: int) -> list[tuple[str, str]]:
    """Wait for so many dead letters: why each part was given up."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        await asyncio.sleep(0.01)
        letters = await ask(pipe.store, "SELECT reason, detail FROM dead ORDER BY id")
        found = [(letter["reason"], letter["detail"]) for letter in letters]
    return found


async def opened(pipe: Pipeline) -> None:
    """Wait until no chat is closed: that is written behind the receipt."""
    while await pipe.store.closed_chats.count():
        await asyncio.sleep(0.01)


async def test_T13_a_chat_that_blocked_the_bot_is_told_nothing_until_it_hears_an_answer_again(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.blocked.add(ANN)
    async with working(pipe):
        assert (await send(pipe, "first")).outcome == "accepted"
        assert await buried(pipe, 1) == [("refused", BLOCKED)]
        refused = await send(pipe, "second")
        assert refused.outcome == "refused" and refused.reason is not None and BLOCKED in refused.reason
        asked = len(fake.calls)
        assert (await send(pipe, "others", "telegram:12")).outcome == "accepted"
        fake.blocked.clear()
        await Rig(pipe).accept("I am back", platform="telegram", chat=str(ANN))
        await fake.until(lambda fake: "echo: I am back" in fake.texts(ANN))
        await opened(pipe)
        assert (await send(pipe, "third")).outcome == "accepted"
        await fake.until(lambda fake: "third" in fake.texts(ANN))
    assert [call.fields["chat_id"] for call in fake.calls[:asked] if call.method == "sendMessage"] == [ANN]
    assert "second" not in fake.texts(ANN)


async def test_what_was_under_way_to_a_chat_that_closed_is_buried_without_asking_the_platform(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    fake.blocked.add(ANN)
    rig, key = Rig(pipe), f"agent:main:telegram:dm:{ANN}"
    for text in ("first", "second"):
        await send(pipe, text)
        await rig.run_turns(key)
    async with working(pipe):
        assert await buried(pipe, 2) == [("refused", BLOCKED), ("chat closed", BLOCKED)]
    assert len(fake.of("sendMessage")) == 1


async def test_T13_a_thread_that_is_gone_closes_no_chat(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with working(pipe):
        await send(pipe, "nobody there", f"telegram:{GROUP}:17")
        [(reason, detail)] = await buried(pipe, 1)
        assert reason == "refused" and "message thread not found" in detail
        assert (await send(pipe, "hello", f"telegram:{GROUP}")).outcome == "accepted"
        await fake.until(lambda fake: fake.texts(GROUP) == ["hello"])
    assert await pipe.store.closed_chats.count() == 0


async def test_an_answer_that_a_closed_chat_does_not_take_leaves_it_closed(pipe: Pipeline, fake: FakeTelegram) -> None:
    fake.blocked.add(ANN)
    async with working(pipe):
        for n, text in enumerate(("one", "two"), 1):
            await Rig(pipe).accept(text, platform="telegram", chat=str(ANN))
            assert (await buried(pipe, n))[-1] == ("refused", BLOCKED)
    [closed] = await pipe.store.closed_chats.page(after="", limit=10)
    assert (closed.destination, closed.reason) == (f"to:telegram:{ANN}", BLOCKED)


async def test_what_a_worker_that_died_was_sending_to_a_closed_chat_is_treated_as_all_else(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    """What nobody asked for is not sent. An answer is, and opens the chat."""
    rig, key, place = Rig(pipe), f"agent:main:telegram:dm:{ANN}", f"to:telegram:{ANN}"
    for is_answer in (False, True):
        if is_answer:
            await rig.accept("hello", platform="telegram", chat=str(ANN))
        else:
            await send(pipe, "news")
        await rig.run_turns(key)
        assert await pipe.store.outbox.take(place, "of a worker that died") is not None
        await write(pipe.store, "UPDATE outbox SET sending_at = 1 WHERE state = 'sending'")
        await pipe.store.closed_chats.close(place, BLOCKED)
        async with working(pipe), asyncio.timeout(PATIENCE_SECONDS):
            if is_answer:
                await opened(pipe)
            else:
                assert await buried(pipe, 1) == [("chat closed", BLOCKED)]
    assert fake.texts(ANN) == ["echo: hello"]

"""What is sent without a question: it joins the chat's conversation, leaves through the outbox, and is never sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared import failpoints
from shared.announcing import Announcement, TargetOutcome, announce
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Malformed
from shared.failpoints import Injected
from shared.lane.stopping import stop
from shared.messages import Source
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.telegram import TelegramSettings
from shared.settings import Settings
from shared.targets import parse_targets
from tests.store.books import ask
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.telegram import TOKEN, FakeTelegram, open_telegram
from tests.support.working import working

ANN, GROUP = 11, -1001500
DM, ROOM = f"agent:main:telegram:dm:{ANN}", f"agent:main:telegram:group:{GROUP}"
MakeSettings = Callable[..., Settings]


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    block = TelegramSettings(token=SecretStr(TOKEN), api_url=fake.url, allowed_users=(str(ANN),), enabled=True)
    return make_settings(telegram=block)


async def send(
    pipe: Pipeline, text: str, *targets: str, key: str = "k1", origin: Source | None = None
) -> list[TargetOutcome]:
    return [*await announce(pipe, Announcement(text, "test", key, origin), parse_targets(targets))]


async def rows(pipe: Pipeline, key: str) -> list[tuple[str, str, Any]]:
    session = await pipe.store.sessions.find(key)
    if session is None:
        return []
    found = await pipe.store.sessions.messages(session["id"], 100)
    return [(row["role"], row["text"], orjson.loads(row["data"]).get("proactive")) for row in found]


async def test_what_is_sent_is_a_row_of_the_chat_and_the_next_turn_sees_it(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with working(pipe):
        [told] = await send(pipe, "The build is **red**", f"telegram:{ANN}")
        await fake.until(lambda fake: fake.texts(ANN) == ["The build is red"])
        rig = Rig(pipe)
        await rig.accept("why?", platform="telegram", chat=str(ANN))
        await fake.until(lambda fake: fake.texts(ANN)[1:] == ["echo: why?"])
    assert (told.outcome, told.session_key) == ("accepted", DM)
    assert await rows(pipe, DM) == [
        ("assistant", "The build is **red**", True),
        ("user", "why?", None),
        ("assistant", "echo: why?", None),
    ]


async def test_the_same_key_sends_once_and_another_key_again(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with working(pipe):
        told = [(await send(pipe, "once", f"telegram:{ANN}", key=key))[0] for key in ("a", "a", "b")]
        await fake.until(lambda fake: len(fake.texts(ANN)) == 2)
        assert [each.outcome for each in told] == ["accepted", "known", "accepted"]
        assert told[0].id == told[1].id != told[2].id
    assert [text for _, text, _ in await rows(pipe, DM)] == ["once", "once"] == fake.texts(ANN)


async def test_sends_and_answers_of_a_chat_leave_in_the_order_in_which_they_were_accepted(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    rig = Rig(pipe)
    for n in range(5):
        await rig.accept(f"q{n}", platform="telegram", chat=str(ANN))
        await send(pipe, f"s{n}", f"telegram:{ANN}", key=f"k{n}")
    async with working(pipe):
        await fake.until(lambda fake: len(fake.texts(ANN)) == 10)
    assert fake.texts(ANN) == [text for n in range(5) for text in (f"echo: q{n}", f"s{n}")]


async def test_a_long_text_is_split_as_a_reply_is(pipe: Pipeline, fake: FakeTelegram) -> None:
    text = "word " * 1800
    async with working(pipe):
        await send(pipe, text, f"telegram:{ANN}")
        await fake.until(lambda fake: len(fake.texts(ANN)) == 3)
    assert "".join(fake.texts(ANN)).replace(" ", "").count("word") == 1800
    assert [(role, said) for role, said, _ in await rows(pipe, DM)] == [("assistant", text)]


async def test_a_command_in_a_sent_text_is_only_text(pipe: Pipeline, fake: FakeTelegram) -> None:
    async with working(pipe):
        for n, text in enumerate(("/new", "/stop", "/status")):
            await send(pipe, text, f"telegram:{ANN}", key=f"k{n}")
        await fake.until(lambda fake: fake.texts(ANN) == ["/new", "/stop", "/status"])
    assert [text for _, text, _ in await rows(pipe, DM)] == ["/new", "/stop", "/status"]


async def test_a_stop_takes_back_no_announcement(rig: Rig, fake: FakeTelegram) -> None:
    await rig.accept("a question", platform="telegram", chat=str(ANN))
    await send(rig.pipe, "an announcement", f"telegram:{ANN}")
    assert await stop(rig.pipe.turns, DM, now_ms(), 10) is not None
    async with working(rig.pipe):
        await fake.until(lambda fake: "an announcement" in fake.texts(ANN))
    assert fake.texts(ANN) == ["an announcement"]


@pytest.mark.parametrize("point", ["accept.after_journal", "accept.after_wake"])
async def test_a_sender_that_died_may_send_again(
    rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: FakeTelegram
) -> None:
    failpoints.arm(tmp_path, point, failpoints.RAISE)
    monkeypatch.setattr("shared.door.reach", failpoints.looking(str(tmp_path)))
    with pytest.raises(Injected):
        await send(rig.pipe, "once", f"telegram:{ANN}")
    assert (await send(rig.pipe, "once", f"telegram:{ANN}"))[0].outcome == "known"
    async with working(rig.pipe):
        await fake.until(lambda fake: fake.texts(ANN) == ["once"])
    assert await ask(rig.pipe.store, "SELECT state FROM outbox") == [{"state": "sent"}]


async def test_T2_origin_is_the_chat_thread_and_person_that_asked(rig: Rig) -> None:
    origin = an_inbound(platform="telegram", chat=str(GROUP), chat_type="group", thread="17").source
    [told] = await send(rig.pipe, "done", "origin", origin=origin)
    assert (told.target, told.session_key) == ("origin", f"{ROOM}:t=17")
    alone = an_inbound(platform="telegram", chat=str(GROUP), chat_type="group").source
    [told] = await send(rig.pipe, "done", "origin", origin=alone)
    assert told.session_key == f"{ROOM}:u=u1"


async def test_T3_origin_without_a_source_is_a_file_and_still_called_origin(rig: Rig) -> None:
    [told] = await send(rig.pipe, "done", "origin")
    assert (told.target, told.outcome) == ("origin", "saved") and told.path is not None
    assert "done" in Path(told.path).read_text()


async def test_T4_T16_local_is_a_file_in_utf8(rig: Rig) -> None:
    [told] = await send(rig.pipe, "日本語 🙂 مرحبا", "local")
    assert told.path is not None
    assert "日本語 🙂 مرحبا" in Path(told.path).read_bytes().decode("utf-8")
    await send(rig.pipe, "日本語 🙂 مرحبا", f"telegram:{ANN}")
    await rig.run_turns(DM)
    assert await rig.transcript(DM) == ["日本語 🙂 مرحبا"]


async def test_texts_for_local_in_the_same_millisecond_are_files_of_their_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.announcing.now_ms", lambda: 1_790_000_000_000)
    told = [(await send(rig.pipe, text, "local", key=text))[0].path for text in ("one", "two", "one")]
    assert told[0] == told[2] and [Path(path or "").read_text().split()[-1] for path in told] == ["one", "two", "one"]


async def test_T10_a_target_that_cannot_be_told_fails_alone(pipe: Pipeline, fake: FakeTelegram) -> None:
    targets = ("slack:C1", "telegram", f"telegram:{ANN}")
    async with working(pipe):
        told = {each.target: each for each in await send(pipe, "hello", *targets)}
        await fake.until(lambda fake: fake.texts(ANN) == ["hello"])
    assert {target: each.outcome for target, each in told.items()} == {
        "slack:C1": "refused",
        "telegram": "refused",
        f"telegram:{ANN}": "accepted",
    }
    assert "not connected" in str(told["slack:C1"].reason) and "home channel" in str(told["telegram"].reason)


async def test_T15_a_text_that_says_nothing_is_filtered_and_reported(rig: Rig) -> None:
    for text in (".", " (silent) ", "(SILENT)"):
        assert [each.outcome for each in await send(rig.pipe, text, f"telegram:{ANN}", "local")] == ["filtered"] * 2
    assert await ask(rig.pipe.store, "SELECT id FROM inbox") == []
    assert (await send(rig.pipe, "(silent) night", f"telegram:{ANN}"))[0].outcome == "accepted"


async def test_a_home_channel_is_what_sethome_says_and_else_what_the_settings_say(
    make_settings: MakeSettings, fake: FakeTelegram
) -> None:
    block = TelegramSettings(token=SecretStr(TOKEN), api_url=fake.url, home_channel=str(GROUP), admin_users=(str(ANN),))
    async with open_pipeline(make_settings(telegram=block)) as pipe, working(pipe):
        assert (await send(pipe, "one", "telegram"))[0].session_key == ROOM
        await fake.until(lambda fake: fake.texts(GROUP) == ["one"])
        command = an_inbound("/sethome", platform="telegram", chat=str(ANN))
        await accept(pipe, replace(command, source=replace(command.source, user=str(ANN))))
        await fake.until(lambda fake: len(fake.texts(ANN)) == 1)
        assert "home channel of telegram now" in fake.texts(ANN)[0]
        assert (await send(pipe, "two", "telegram", key="k2"))[0].session_key == DM
        await fake.until(lambda fake: fake.texts(ANN)[1:] == ["two"])


async def test_a_group_with_one_conversation_is_told_in_it_and_one_with_several_in_its_own(rig: Rig) -> None:
    place = {"platform": "telegram", "chat": str(GROUP), "chat_type": "group"}
    await rig.accept("hello", **place)
    [told] = await send(rig.pipe, "news", f"telegram:{GROUP}")
    assert told.session_key == f"{ROOM}:u=u1"
    other = an_inbound("hello", **place)
    await accept(rig.pipe, replace(other, source=replace(other.source, user="u2")))
    [told] = await send(rig.pipe, "news", f"telegram:{GROUP}", key="k2")
    assert told.session_key == ROOM


async def test_an_announcement_is_in_reply_to_nothing(rig: Rig) -> None:
    await send(rig.pipe, "news", "webhook:c1")
    await rig.run_turns(key_of())
    [row] = await ask(rig.pipe.store, "SELECT payload FROM outbox")
    assert orjson.loads(row["payload"])["in_reply_to"] == []


@pytest.mark.parametrize(("text", "key"), [("", "k"), ("  \n", "k"), ("x" * 100_001, "k"), ("x", ""), ("x", "k" * 257)])
async def test_a_text_and_a_key_have_limits(rig: Rig, text: str, key: str) -> None:
    with pytest.raises(Malformed):
        await send(rig.pipe, text, f"telegram:{ANN}", key=key)

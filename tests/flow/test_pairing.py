"""Pairing from a stranger's message to their first answer: real servers, a real worker, and a local Bot API."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from producers.pairing import LATER_NOTICE
from producers.reloading import RunningProducer
from shared.errors import CannotDo, NotFound, Unavailable
from shared.failpoints import Injected
from shared.operating.pairing import approve_code, revoke_user
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.pairing import People, paired_people
from shared.settings import Settings
from shared.store.pairing import MOST_OPEN
from tests.flow.test_telegram import ANN, SECRET, SUPERGROUP, Hook, block, said
from tests.store.books import ask as rows_of
from tests.store.books import write
from tests.support.door import open_door
from tests.support.telegram import FakeTelegram, open_telegram
from tests.support.working import working
from workers.commands.pairing import USAGE

BOB = 22
MakeSettings = Callable[..., Settings]


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with open_telegram() as opened:
        yield opened


@pytest.fixture
def settings(make_settings: MakeSettings, fake: FakeTelegram) -> Settings:
    return make_settings(telegram=block(fake, webhook_secret=(SecretStr(SECRET),), admin_users=(str(ANN),)))


@pytest.fixture
async def hook(pipe: Pipeline, fake: FakeTelegram) -> AsyncIterator[Hook]:
    async with open_door(pipe) as door, working(pipe):
        yield Hook(door, fake)


def from_bob(text: str, chat: int = BOB, user: int = BOB, name: str = "Bob") -> dict[str, Any]:
    update = said(text, chat)
    update["message"]["from"] = {"id": user, "is_bot": False, "first_name": name}
    return update


async def code_for(hook: Hook, chat: int = BOB) -> str:
    await hook.fake.until(lambda fake: fake.texts(chat))
    [text] = hook.fake.texts(chat)
    [code] = set(re.findall(r"\b[A-HJ-NP-Z2-9]{8}\b", text))
    return str(code)


@asynccontextmanager
async def watched(pipe: Pipeline) -> AsyncIterator[None]:
    """As a receiver's process runs: it hears of changes, and trusts its memory."""
    async with RunningProducer(pipe, "receive", lambda _: None).listening(lambda: None):
        await until(lambda: pipe.store.approvals.trusted)
        yield


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


async def test_P12_a_strangers_direct_message_is_answered_with_a_code_once(hook: Hook) -> None:
    await hook.bring(from_bob("let me in"), from_bob("please"), from_bob("now"))
    await code_for(hook)
    await hook.nothing_more()
    kept = await rows_of(hook.door.pipe.store, "SELECT session_key FROM inbox")
    assert [row["session_key"] for row in kept] == [f"agent:main:telegram:dm:{ANN}"]


async def test_a_paired_stranger_is_answered_from_the_next_message_on(hook: Hook) -> None:
    await hook.bring(from_bob("before"))
    paired = await approve_code(hook.door.pipe, "telegram", await code_for(hook), by="test")
    assert (paired.user, paired.name) == (str(BOB), "Bob")
    await hook.bring(from_bob("after"), from_bob("in a group", SUPERGROUP))
    await hook.fake.until(
        lambda fake: "echo: after" in fake.texts(BOB) and "echo: in a group" in fake.texts(SUPERGROUP)
    )
    assert "echo: before" not in hook.fake.texts(BOB)


async def test_N88_a_stranger_gets_a_code_in_a_direct_chat_and_nothing_in_a_group(hook: Hook) -> None:
    await hook.bring(from_bob("hello", SUPERGROUP), from_bob("hello"))
    await code_for(hook)
    assert hook.fake.texts(SUPERGROUP) == []


@pytest.mark.parametrize("off", [{"pairing": False}, {"telegram": False}])
async def test_P13_with_pairing_switched_off_a_stranger_gets_no_answer(
    make_settings: MakeSettings, fake: FakeTelegram, off: dict[str, bool]
) -> None:
    here = None if "pairing" in off else False
    telegram = block(fake, webhook_secret=(SecretStr(SECRET),), pairing=here)
    settings = make_settings(telegram=telegram, pairing=off.get("pairing", True))
    async with open_pipeline(settings) as pipe, open_door(pipe) as door, working(pipe):
        hook = Hook(door, fake)
        await hook.bring(from_bob("let me in"))
        await hook.nothing_more()
        assert await paired_people(pipe.store, 10) == People((), ())


async def test_P14_a_stranger_who_asks_while_too_many_do_gets_one_notice_and_then_silence(hook: Hook) -> None:
    for user in range(100, 100 + MOST_OPEN):
        await hook.bring(from_bob("me", user, user))
    await hook.bring(from_bob("me too"), from_bob("me too"))
    await hook.fake.until(lambda fake: fake.texts(BOB))
    await hook.nothing_more()
    assert hook.fake.texts(BOB) == [LATER_NOTICE]


async def test_a_revoked_user_is_refused_with_the_next_message_and_waiting_mail_is_answered(
    pipe: Pipeline, fake: FakeTelegram
) -> None:
    """The operator's command runs in another process: the door hears of it through Redis."""
    async with watched(pipe), open_door(pipe) as door, open_pipeline(pipe.settings) as elsewhere:
        hook = Hook(door, fake)
        async with working(pipe):
            await hook.bring(from_bob("let me in"))
            await approve_code(elsewhere, "telegram", await code_for(hook), by="test")
            await until(lambda: not pipe.store.approvals.remembers)
            await hook.bring(from_bob("one"))
            await fake.until(lambda fake: "echo: one" in fake.texts(BOB))
        await hook.bring(from_bob("waiting"))
        assert pipe.store.approvals.remembers == 1
        await revoke_user(elsewhere, "telegram", str(BOB))
        await until(lambda: not pipe.store.approvals.remembers)
        await hook.bring(from_bob("too late"))
        async with working(pipe):
            await fake.until(lambda fake: "echo: waiting" in fake.texts(BOB))
            await hook.nothing_more()
        assert "echo: too late" not in fake.texts(BOB)
        with pytest.raises(NotFound):
            await revoke_user(pipe, "telegram", str(BOB))


async def test_a_paired_users_messages_cost_no_further_read_while_changes_are_heard(
    pipe: Pipeline, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = pipe.store.database.read

    async def counted(*steps: Any) -> Any:
        reads.extend(step.statement.name for step in steps if step.statement.name == "paired_one")
        return await read(*steps)

    async with open_door(pipe) as door:
        hook = Hook(door, fake)
        async with working(pipe):
            await hook.bring(from_bob("let me in"))
            await approve_code(pipe, "telegram", await code_for(hook), by="test")
        monkeypatch.setattr(pipe.store.database, "read", counted)
        async with watched(pipe):
            await hook.bring(*(from_bob(f"{n}") for n in range(20)))
            assert len(reads) == 1
            reads.clear()
        await hook.bring(*(from_bob(f"again {n}") for n in range(3)))
        assert len(reads) == 3  # nobody tells us of changes now


async def test_N89_P15_while_approvals_cannot_be_read_nobody_is_let_in_and_nothing_is_erased(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = hook.door.pipe
    await hook.bring(from_bob("let me in"))
    await approve_code(pipe, "telegram", await code_for(hook), by="test")
    before = await rows_of(pipe.store, "SELECT * FROM paired")

    async def away(*_: Any) -> Any:
        raise Unavailable("database")

    monkeypatch.setattr(pipe.store.pairings, "is_approved", away)
    response = await hook.post(from_bob("hello"))
    assert response.status_code == 503
    monkeypatch.undo()
    assert await rows_of(pipe.store, "SELECT * FROM paired") == before
    await hook.bring(from_bob("again"))
    await hook.fake.until(lambda fake: "echo: again" in fake.texts(BOB))


@pytest.mark.parametrize("point", ["pair.before_code", "pair.after_code"])
async def test_a_code_that_is_cut_short_is_told_once(hook: Hook, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    reached: list[str] = []

    def raise_once(here: str) -> None:
        reached.append(here)
        if here == point and reached.count(point) == 1:
            raise Injected(point)

    monkeypatch.setattr("producers.pairing.reach", raise_once)
    update = from_bob("let me in")
    assert (await hook.post(update)).status_code == 500
    await hook.bring(update, update)
    if point == "pair.after_code":  # its wake was lost: the housekeeper finds the part
        store = hook.door.pipe.store
        [row] = await rows_of(store, "SELECT id, destination FROM outbox WHERE state = 'pending'")
        await hook.door.pipe.deliveries.put(row["destination"], row["id"], str(row["id"]).encode())
    await code_for(hook)
    await hook.nothing_more()


async def test_an_admin_lists_approves_and_revokes_in_the_chat_and_others_cannot(hook: Hook) -> None:
    await hook.bring(from_bob("let me in", name="Bob\n\u202e" + "x" * 5000))
    code = await code_for(hook)

    async def say(text: str, answer: str) -> None:
        await hook.bring(said(text))
        await hook.fake.until(lambda fake: any(answer in text for text in fake.texts(ANN)))

    await say("/pair", "/pair list")
    await say("/pair list", f"waiting: {BOB} (Bob xxx")
    await say("/pair approve WRONGONE", "That did not work")
    await say(f"/pair approve {code.lower()}", "may talk to me now")
    await hook.bring(from_bob("/pair list"))
    await hook.fake.until(lambda fake: "/pair is for admins here." in fake.texts(BOB))
    elsewhere = [f"('discord', '{n}', '', '', 'test', {10**14 + n})" for n in range(30)]  # newer than Bob's
    insert = "INSERT INTO paired (platform, user_id, user_alt, user_name, approved_by, approved_at) VALUES "
    await rows_of(hook.door.pipe.store, insert + ", ".join(elsewhere) + " RETURNING user_id")
    await say("/pair list", f"may talk: {BOB}")
    await say(f"/pair revoke {BOB}", "may no longer talk to me")
    [line] = await rows_of(hook.door.pipe.store, "SELECT COUNT(*) AS n FROM paired WHERE platform = 'telegram'")
    assert line == {"n": 0} and all(len(text) < 500 for text in hook.fake.texts(ANN))


def has_answered(times: int, fake: FakeTelegram) -> bool:
    return len(fake.texts(ANN)) == times


async def test_pair_without_its_word_or_with_another_says_how_it_is_used_and_counts_as_no_wrong_code(
    hook: Hook,
) -> None:
    asked = ("/pair", "/pair list all", "/pair approve", "/pair approve  ", "/pair revoke", "/pair nonsense")
    for n, text in enumerate(asked, 1):
        await hook.bring(said(text))
        await hook.fake.until(partial(has_answered, n))
    assert hook.fake.texts(ANN) == [USAGE] * len(asked)


async def test_a_platform_without_people_pairs_nobody(pipe: Pipeline) -> None:
    for platform in ("webhook", "api", "nowhere"):
        with pytest.raises(CannotDo):
            await approve_code(pipe, platform, "ABCDEFGH", by="test")


async def test_a_lock_that_wrong_codes_caused_is_said(pipe: Pipeline) -> None:
    for _ in range(5):
        with pytest.raises(CannotDo, match="no valid code"):
            await approve_code(pipe, "telegram", "ABCDEFGH", by="test")
    with pytest.raises(CannotDo, match="locked"):
        await approve_code(pipe, "telegram", "ABCDEFGH", by="test")
    await write(pipe.store, "DELETE FROM pairing_locks")

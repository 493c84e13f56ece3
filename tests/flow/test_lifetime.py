"""When conversations end by themselves and how threads begin. Ids are rows of the behaviour list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Superseded, Unavailable
from shared.messages import Inbound
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import ResetRule, ResetSettings, Settings
from shared.store.change import Commit, Proof
from shared.store.transcript import LATEST
from tests.store.books import ask, write
from tests.support.pipe import Rig, an_inbound, key_of
from workers.agents.results import answered
from workers.turn.lifetime import reset
from workers.turn.take import take_turns

HOUR_MS = 3_600_000


class Recorder:
    """Answers with a count, remembers what it was given, and can be no model at all: nobody may ask it aside."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.failing = False
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def run(self, turn: Turn) -> Result:
        self.turns.append(turn)
        self.begun.set()
        await self.go_on.wait()
        if self.failing:
            raise RuntimeError("no")
        return answered(f"answer {len(self.turns)}")


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    rule = ResetRule(mode="daily", notify=False)
    return make_settings(
        reset=ResetSettings(mode="idle", idle_minutes=30, notify_exclude=(), by_type={"group": rule}),
        timezone="Europe/Berlin",
    )


@pytest.fixture
def agent(rig: Rig) -> Recorder:
    rig.agent = Recorder()
    return rig.agent


async def say(rig: Rig, text: str, **about: Any) -> list[str]:
    """Send a message, run its turn, and give back what the chat is told by it."""
    return await send(rig, an_inbound(text, **about))


async def send(rig: Rig, inbound: Inbound) -> list[str]:
    accepted = await accept(rig.pipe, inbound)
    await rig.run_turns(accepted.session_key)
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None
    parts = await ask(rig.pipe.store, "SELECT id FROM outbox WHERE turn_id = :turn_id", turn_id=row["turn_id"] or "")
    ids = {part["id"] for part in parts}
    place = inbound.source
    sent = await rig.pipe.store.outbox.open_parts(f"to:{place.platform}:{place.chat}", 1000)
    return [part.text for part in sent if part.id in ids]


async def age(pipe: Pipeline, hours: float, key: str = key_of()) -> dict[str, Any]:
    """Let the session of a key lie for some hours, and give back its row."""
    row = await pipe.store.sessions.find(key)
    assert row is not None
    past = now_ms() - int(hours * HOUR_MS)
    await write(pipe.store, "UPDATE sessions SET updated_at = :past WHERE id = :id", past=past, id=row["id"])
    return row


async def current(pipe: Pipeline, key: str = key_of()) -> dict[str, Any]:
    row = await pipe.store.sessions.find(key)
    assert row is not None
    return row


async def test_R11_a_session_that_lay_idle_ends_and_the_turn_runs_in_the_next(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    old = await age(rig.pipe, 1)
    told = await say(rig, "two")
    new, ended = await current(rig.pipe), await rig.pipe.store.sessions.find(old["id"])
    assert ended is not None
    assert (ended["end_reason"], ended["ended_at"] is not None) == ("session_reset", True)
    assert (new["parent_id"], new["id"] != old["id"]) == (old["id"], True)
    assert agent.turns[1].history == () and agent.turns[1].session_id == new["id"]
    assert agent.turns[1].mail[0].text == "two"
    assert await rig.transcript() == ["two", "answer 2"]
    assert len(agent.turns[1].notes) == 1 and "nothing had been said for a while" in agent.turns[1].notes[0]
    assert len(told) == 2 and "/resume" in told[0] and told[1] == "answer 2"


async def test_R13_the_next_message_stays_in_the_new_session_and_is_told_nothing(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    await age(rig.pipe, 1)
    await say(rig, "two")
    new = await current(rig.pipe)
    assert await say(rig, "three") == ["answer 3"]
    assert agent.turns[2].notes == ()
    assert (await current(rig.pipe))["id"] == new["id"]
    assert await rig.pipe.store.facts.of(new["id"]) == {}


async def test_R13_under_one_lease_too_only_the_first_answer_tells(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    await age(rig.pipe, 1)
    for text in ("two", "three"):
        await rig.accept(text)
    await rig.run_turns()
    assert [len(turn.notes) for turn in agent.turns] == [0, 1, 0]
    assert await rig.transcript() == ["two", "answer 2", "three", "answer 3"]


async def test_R12_a_session_of_commands_alone_had_no_activity_and_nobody_is_told(rig: Rig, agent: Recorder) -> None:
    await say(rig, "/whoami")
    await age(rig.pipe, 1)
    assert await say(rig, "hello") == ["answer 1"]
    assert len(agent.turns[0].notes) == 1
    assert agent.turns[0].history == ()


async def test_R14_what_is_to_be_told_survives_failed_turns_commands_and_a_restart(
    rig: Rig, agent: Recorder, settings: Settings
) -> None:
    await say(rig, "one")
    await age(rig.pipe, 1)
    agent.failing = True
    await rig.accept("two")
    await rig.run_turns()  # the session is a new one by now, and its first turn failed
    new = await current(rig.pipe)
    assert await rig.pipe.store.facts.of(new["id"]) == {"reset_reason": "idle", "reset_active": "1"}
    agent.failing = False
    async with open_pipeline(settings) as pipe:
        other = Rig(pipe, agent)
        await rig.expire_lease(pipe.turns, key_of())
        await pipe.turns.recover(key_of())
        await other.run_turns()
        assert len(agent.turns[-1].notes) == 1
        assert (await current(pipe))["id"] == new["id"]
        assert await other.transcript() == ["two", "answer 3"]
        assert await pipe.store.facts.of(new["id"]) == {}


async def test_a_command_tells_nothing_and_leaves_it_for_the_first_answer(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    await age(rig.pipe, 1)
    assert len(await say(rig, "/whoami")) == 1
    assert len(await say(rig, "two")) == 2


async def test_a_new_session_that_lies_idle_itself_still_tells_of_the_one_before(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    session, _ = await rig.pipe.store.transcript.load(key_of(), "")
    proof = Proof("turn_r", "w", 0, 0, 0)
    await rig.pipe.store.commit(Commit(session, key_of(), proof, change=reset(session, "idle")))  # its worker crashes
    empty = await age(rig.pipe, 100)
    assert len(await say(rig, "two")) == 2
    assert (await current(rig.pipe))["id"] == empty["id"]


async def test_the_policy_of_the_chat_type_counts_whole_and_its_chats_are_not_told(rig: Rig, agent: Recorder) -> None:
    group = {"chat": "g1", "chat_type": "group"}
    key = "agent:main:webhook:group:g1:u=u1"
    await say(rig, "one", **group)
    old = await age(rig.pipe, 48, key)
    assert await say(rig, "two", **group) == ["answer 2"]
    assert (await current(rig.pipe, key))["parent_id"] == old["id"]
    assert "a new day" in agent.turns[1].notes[0]


async def test_R17_a_reset_asks_no_model(rig: Rig, agent: Recorder) -> None:
    """The agent has a model to be asked aside, and ending a session leaves it alone."""
    asked: list[str] = []

    class Model:
        async def ask(self, *_: Any) -> Any:
            asked.append("!")
            raise AssertionError

    await say(rig, "one")
    await age(rig.pipe, 1)
    await rig.accept("/whoami")
    parts = rig.parts()
    parts.side_model = Model()
    await take_turns(await rig.lease(), parts)
    assert len(agent.turns) == 1 and asked == []
    assert (await current(rig.pipe))["parent_id"] is not None


async def test_R8_without_a_policy_a_conversation_never_ends(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings()) as pipe:
        rig, agent = Rig(pipe), Recorder()
        rig.agent = agent
        await say(rig, "one")
        await age(pipe, 10_000)
        await say(rig, "two")
        assert len(agent.turns[1].history) == 2


async def test_R18_new_on_an_unknown_key_ends_nothing_and_the_next_message_begins_the_session(
    rig: Rig, agent: Recorder
) -> None:
    assert await say(rig, "/new") == ["This is a new conversation already."]
    first = await current(rig.pipe)
    assert first["parent_id"] is None
    assert await say(rig, "hello") == ["answer 1"]
    assert (await current(rig.pipe))["id"] == first["id"]


async def test_R20_of_two_that_find_a_session_over_one_ends_it_and_both_go_on_in_the_same(rig: Rig) -> None:
    """Single flight is the compare-and-set: the loser writes nothing and loads what the winner made."""
    await say(rig, "one")
    await age(rig.pipe, 1)
    transcript = rig.pipe.store.transcript
    session, _ = await transcript.load(key_of(), "")

    async def end(name: str) -> None:
        proof = Proof(f"turn_{name}", name, 0, 0, 0)
        await rig.pipe.store.commit(Commit(session, key_of(), proof, change=reset(session, "idle")))

    outcomes = await asyncio.gather(*map(end, "abcd"), return_exceptions=True)
    assert [isinstance(outcome, Superseded) for outcome in outcomes].count(True) == 3
    children = await ask(rig.pipe.store, "SELECT id FROM sessions WHERE parent_id = :id", id=session.id)
    assert [row["id"] for row in children] == [(await current(rig.pipe))["id"]]


async def test_R9_a_turn_that_runs_longer_than_the_idle_time_is_not_reset(rig: Rig, agent: Recorder) -> None:
    """There are no background processes to ask: what runs holds the key, and only the key's holder ends its session."""
    await say(rig, "one")
    agent.begun.clear()
    agent.go_on.clear()
    await rig.accept("two")
    running = asyncio.create_task(rig.run_turns())
    await agent.begun.wait()
    old = await age(rig.pipe, 5)
    await rig.accept("three")
    agent.go_on.set()
    await running
    assert (await current(rig.pipe))["id"] == old["id"]
    assert [len(turn.history) for turn in agent.turns] == [0, 2, 4]


async def test_a_message_that_waited_for_a_worker_is_judged_by_when_it_came(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    await age(rig.pipe, 5)
    inbound = an_inbound("two")
    await accept(rig.pipe, replace(inbound, received_at=now_ms() - 5 * HOUR_MS))
    await rig.run_turns()
    assert len(agent.turns[1].history) == 2


@pytest.mark.parametrize("received_at", [0, LATEST], ids=["no time", "a clock ahead"])
async def test_a_message_that_does_not_say_when_it_came_or_says_a_time_to_come_is_judged_by_now(
    rig: Rig, received_at: int
) -> None:
    lifetime, now = rig.parts().lifetime, now_ms()
    session = (await rig.pipe.store.transcript.load(key_of(), ""))[0]
    inbound = replace(an_inbound(), received_at=received_at)
    for hours, why in ((0.25, None), (0.75, "idle")):
        known = replace(session, message_count=2, updated_at=now - int(hours * HOUR_MS))
        assert lifetime.over(known, inbound) == why
    silent = replace(session, message_count=0, updated_at=now - HOUR_MS)
    assert lifetime.over(silent, inbound) is None


async def test_a_thread_whose_dm_cannot_be_read_now_begins_when_it_can(
    rig: Rig, agent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(rig, in_dm("hello"))
    accepted = await accept(rig.pipe, in_dm("in here", thread="7"))

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("no database")

    with monkeypatch.context() as patch:
        patch.setattr(rig.pipe.store.transcript, "window", away)
        lease = await rig.lease(accepted.session_key)
        with pytest.raises(Unavailable):
            await rig.turns(lease)
        await lease.release(spent=False)
    await rig.run_turns(accepted.session_key)
    assert [entry.text for entry in agent.turns[1].history] == ["hello", "answer 1"]


async def test_a_session_that_somebody_came_back_to_is_not_over_for_its_age(rig: Rig, agent: Recorder) -> None:
    await say(rig, "one")
    old = await age(rig.pipe, 5)
    resumed = {"id": old["id"], "now": str(now_ms())}
    await write(rig.pipe.store, "INSERT INTO facts (scope, name, value) VALUES (:id, 'resumed_at', :now)", **resumed)
    await say(rig, "two")
    assert (await current(rig.pipe))["id"] == old["id"]


def in_dm(text: str, *, platform: str = "telegram", thread: str | None = None, **about: Any) -> Inbound:
    inbound = an_inbound(text, chat="42")
    return replace(inbound, source=replace(inbound.source, platform=platform, thread=thread, **about))


async def rows(rig: Rig, key: str) -> list[str]:
    return [entry.text for entry in await rig.pipe.store.transcript.window(key, before=LATEST)]


@pytest.mark.parametrize("platform", ["slack", "telegram", "discord"])
async def test_D1_D2_D8_a_dm_thread_begins_with_a_copy_and_the_dm_stays_as_it_was(
    rig: Rig, agent: Recorder, platform: str
) -> None:
    await send(rig, in_dm("hello", platform=platform))
    await send(rig, in_dm("/whoami", platform=platform))
    parent = f"agent:main:{platform}:dm:42"
    before = await rows(rig, parent)
    await send(rig, in_dm("in here", platform=platform, thread="7"))
    assert [entry.text for entry in agent.turns[1].history] == ["hello", "answer 1"]
    assert await rows(rig, f"{parent}:t=7") == ["hello", "answer 1", "in here", "answer 2"]
    assert await rows(rig, parent) == before
    await send(rig, in_dm("more", platform=platform, thread="7"))
    assert [entry.text for entry in agent.turns[2].history] == ["hello", "answer 1", "in here", "answer 2"]


async def test_D3_threads_are_copies_of_the_dm_and_not_of_each_other(rig: Rig, agent: Recorder) -> None:
    await send(rig, in_dm("hello"))
    await send(rig, in_dm("in a", thread="a"))
    await send(rig, in_dm("in b", thread="b"))
    assert await rows(rig, "agent:main:telegram:dm:42:t=b") == ["hello", "answer 1", "in b", "answer 3"]
    await send(rig, in_dm("later"))
    assert await rows(rig, "agent:main:telegram:dm:42:t=a") == ["hello", "answer 1", "in a", "answer 2"]


async def test_D5_a_thread_of_a_group_begins_empty(rig: Rig, agent: Recorder) -> None:
    await send(rig, in_dm("hello", chat_type="group"))
    await send(rig, in_dm("in here", chat_type="group", thread="7"))
    assert agent.turns[1].history == ()


async def test_D6_without_a_dm_before_it_a_thread_begins_empty_and_without_a_thread_nothing_is_copied(
    rig: Rig, agent: Recorder
) -> None:
    await send(rig, in_dm("in here", thread="7"))
    await send(rig, in_dm("hello"))
    assert [turn.history for turn in agent.turns] == [(), ()]


async def test_D9_a_thread_that_could_not_be_seeded_is_usable(
    rig: Rig, agent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(rig, in_dm("hello"))

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(rig.pipe.store.transcript, "window", broken)
    assert await send(rig, in_dm("in here", thread="7")) == ["answer 2"]
    assert agent.turns[1].history == ()
    assert await send(rig, in_dm("more", thread="7")) == ["answer 3"]


async def test_a_thread_that_begins_with_a_command_is_seeded_all_the_same(rig: Rig, agent: Recorder) -> None:
    await send(rig, in_dm("hello"))
    await send(rig, in_dm("/whoami", thread="7"))
    await send(rig, in_dm("in here", thread="7"))
    assert [e.text for e in agent.turns[1].history if not e.data.get("command")] == ["hello", "answer 1"]

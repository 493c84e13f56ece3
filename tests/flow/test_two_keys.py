"""Two keys on one session: their turns follow one another, nothing is lost, and no commit is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from shared import keys, metrics
from shared.agent.turn import Result, Turn
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.support.pipe import Rig, key_of
from tests.support.working import working
from workers.agents.results import answered

A, B = "a", "b"  # chats of one person


class OneAtATime:
    """Answers after a moment, and notes which turns of one session ran at the same time."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.heard: list[str] = []
        self.overlaps: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def run(self, turn: Turn) -> Result:
        self.running[turn.session_id] += 1
        if self.running[turn.session_id] > 1:
            self.overlaps.append(turn.mail[0].text)
        await asyncio.sleep(0.002)
        await self.hold.wait()
        self.running[turn.session_id] -= 1
        self.heard.append(turn.mail[0].text)
        return answered(f"done {turn.mail[0].text}")


def refused() -> float:
    return float(metrics.FENCE_REJECTED._value.get())


async def states(pipe: Pipeline, ids: list[str]) -> Counter[str]:
    rows = [await pipe.store.journal.find(id) for id in ids]
    return Counter(row["state"] for row in rows if row is not None)


async def all_answered(pipe: Pipeline, ids: list[str]) -> None:
    async with asyncio.timeout(60):
        while (await states(pipe, ids))["answered"] < len(ids):
            await asyncio.sleep(0.02)


async def meet(rig: Rig) -> str:
    """Let chat b resume the session that chat a began; its id."""
    await rig.accept("begin", chat=A)
    await rig.run_turns(key_of(A))
    await rig.accept("/title ours", chat=A)
    await rig.run_turns(key_of(A))
    await rig.accept("/resume ours", chat=B)
    await rig.run_turns(key_of(B))
    found = [await rig.pipe.store.sessions.find(key_of(chat)) for chat in (A, B)]
    assert found[0] is not None and found[0] == found[1]
    return str(found[0]["id"])


async def test_fifty_messages_on_each_of_two_keys_at_once_run_one_after_another(
    make_settings: Callable[..., Settings],
) -> None:
    settings = make_settings(partitions=4, log_level="error")
    agent, before = OneAtATime(), refused()
    async with open_pipeline(settings) as pipe, open_pipeline(settings) as other:
        rig = Rig(pipe)
        await meet(rig)
        async with working(pipe, agent), working(other, agent):
            sent = await asyncio.gather(*(rig.accept(f"{chat}{n}", chat=chat) for n in range(50) for chat in (A, B)))
            await all_answered(pipe, [one.id for one in sent])
        said = [text for text in await rig.transcript(key_of(A)) if text[0] in "ab" and text[1:].isdigit()]
        assert agent.overlaps == []
        assert sorted(said) == sorted(f"{chat}{n}" for n in range(50) for chat in (A, B))
        assert said == agent.heard  # the transcript has them in the order in which they ran
        rows = [r for r in await rig.transcript(key_of(B)) if r in said or r.startswith("done ")]
        assert rows == [row for text in said for row in (text, f"done {text}")]
        assert refused() == before
        assert not [name for name in await rig.residue() if "kt:session:" in name]


async def test_a_key_that_was_busy_before_it_was_joined_is_waited_for(make_settings: Callable[..., Settings]) -> None:
    """Its lease began when the session was its own, so it knows of no lock: who joins waits until that lease has ended."""
    agent, before = OneAtATime(), refused()
    async with open_pipeline(make_settings(partitions=4, log_level="error")) as pipe:
        rig = Rig(pipe, agent)
        await rig.accept("begin", chat=A)
        await rig.run_turns(key_of(A))
        await rig.accept("/title ours", chat=A)
        await rig.run_turns(key_of(A))
        async with working(pipe, agent):
            agent.hold.clear()
            busy = [await rig.accept(f"a{n}", chat=A) for n in range(5)]
            async with asyncio.timeout(30):
                while not sum(agent.running.values()):
                    await asyncio.sleep(0.005)
            joining = [await rig.accept(text, chat=B) for text in ("/resume ours", "b0", "b1")]
            await all_answered(pipe, [joining[0].id])
            [lock] = [f"kt:session:{id}" for id in [(await pipe.store.journal.route(key_of(B)) or {})["session_id"]]]
            async with asyncio.timeout(30):  # b stands in line, and a knows nothing of it
                while not await pipe.servers.of_key(lock.removeprefix("kt:session:")).client.exists(lock):
                    await asyncio.sleep(0.005)
            agent.hold.set()
            await all_answered(pipe, [one.id for one in [*busy, *joining]])
        assert agent.overlaps == []
        assert agent.heard[-7:] == [*(f"a{n}" for n in range(5)), "b0", "b1"]
        assert refused() == before


async def test_a_session_that_one_key_knows_pays_for_no_lock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(id: str) -> str:
        calls.append(id)
        return f"kt:session:{id}"

    monkeypatch.setattr(keys, "session_lock", noted)
    await rig.accept("/title mine", chat=A)
    await rig.run_turns(key_of(A))
    await rig.accept("/new", chat=A)
    await rig.run_turns(key_of(A))
    await rig.accept("/resume mine", chat=A)  # the key that began it comes back: nobody else is there
    await rig.run_turns(key_of(A))
    await rig.accept("hello", chat=A)
    await rig.run_turns(key_of(A))
    assert calls == []


async def test_N84_a_thread_has_its_own_conversation_also_where_its_chat_shares_one_with_another(rig: Rig) -> None:
    session = await meet(rig)
    shared_rows = await rig.transcript(key_of(A))
    thread = f"{key_of(B)}:t=t1"
    await rig.accept("in the thread", chat=B, thread="t1")
    await rig.run_turns(thread)
    own = await rig.pipe.store.sessions.find(thread)
    assert own is not None and own["id"] != session
    assert "in the thread" in await rig.transcript(thread) and await rig.transcript(key_of(A)) == shared_rows
    await rig.accept("in the chat", chat=B)
    await rig.run_turns(key_of(B))
    assert "in the chat" in await rig.transcript(key_of(A)) and "in the chat" not in await rig.transcript(thread)


async def test_who_leaves_a_session_is_waited_for_no_longer(rig: Rig) -> None:
    session = await meet(rig)
    await rig.accept("/new", chat=B)
    await rig.run_turns(key_of(B))
    loaded, _ = await rig.pipe.store.transcript.load(key_of(A), "")
    assert loaded.id == session
    assert [name for name in loaded.facts if name.startswith("joined:")] == [f"joined:{key_of(A)}"]


async def test_a_dead_holders_ticket_runs_out(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings(lease_seconds=0.6, heartbeat_seconds=0.15)
    async with open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        session = await meet(rig)
        client = pipe.servers.of_key(session).client
        seconds, micros = await client.time()
        until = seconds * 1000 + micros // 1000 + 600
        await client.hset(keys.session_lock(session), "a worker that died", f"1:{until}")
        await rig.accept("after", chat=B)
        await rig.run_turns(key_of(B))
        assert (await rig.transcript(key_of(A)))[-2:] == ["after", "echo: after"]


async def test_a_session_lock_that_redis_forgot_costs_no_message(make_settings: Callable[..., Settings]) -> None:
    """After a loss both keys may run at once: then the compare-and-set decides, and whoever lost runs again."""
    settings = make_settings(sweep_seconds=0.2, log_level="error", lease_seconds=1.5, heartbeat_seconds=0.5)
    agent = OneAtATime()
    async with open_pipeline(settings) as pipe:
        rig = Rig(pipe)
        await meet(rig)
        async with working(pipe, agent):
            sent = [await rig.accept(f"{chat}{n}", chat=chat) for n in range(10) for chat in (A, B)]
            async with asyncio.timeout(30):
                while not agent.heard:
                    await asyncio.sleep(0.002)
            await pipe.servers.all[0].client.flushall()
            await all_answered(pipe, [one.id for one in sent])
        said = [text for text in await rig.transcript(key_of(A)) if text[0] in "ab" and text[1:].isdigit()]
        assert sorted(said) == sorted(f"{chat}{n}" for n in range(10) for chat in (A, B))
        for chat in (A, B):
            assert [text for text in said if text[0] == chat] == [f"{chat}{n}" for n in range(10)]

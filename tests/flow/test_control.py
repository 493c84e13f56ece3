"""Control messages do not wait behind the turn: /stop and /status, from any process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from shared import keys
from shared.agent.turn import Result, Turn
from shared.control import is_control
from shared.door import Acceptance
from shared.lane import Claim
from shared.lane.freeing import free
from shared.mail import encode_mail
from shared.messages import State
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.export import ExportedSession, export_all
from shared.reading.mailbox import KeyInJournal, mailbox_of
from shared.reading.trace import trace
from shared.settings import Settings
from shared.store.control import ControlCommit, ControlCommitted
from tests.store.books import ask, contents, write
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from tests.support.working import working
from workers import commands
from workers.agents.results import answered
from workers.turn.counting import CRASH_FACTOR
from workers.upkeep.housekeeper import Housekeeper

SECONDS = 30


class Slow:
    """Never ends what it is told to `hang` on, and notes what it began and what was cut short."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cut: list[str] = []
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> Result:
        text = turn.mail[0].text
        self.turns.append(turn)
        self.begun.append(text)
        try:
            if text.startswith("hang"):
                await asyncio.Event().wait()
            if text.startswith("fail"):
                raise RuntimeError("as told")
        except asyncio.CancelledError:
            self.cut.append(text)
            raise
        return answered(f"done {text}")


@pytest.fixture(params=["journal", "redis"])
async def two(
    request: pytest.FixtureRequest, make_settings: Callable[..., Settings]
) -> AsyncIterator[tuple[Rig, Slow]]:
    """Two workers with their own connections, as two processes have; one of them runs the turns."""
    settings = make_settings(durability=request.param, log_level="error", backoff_seconds=30, partitions=3)
    agent = Slow()
    async with (
        open_pipeline(settings) as pipe,
        open_pipeline(settings) as other,
        working(pipe, agent),
        working(other, agent),
    ):
        yield Rig(pipe, agent), agent


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


async def ended(pipe: Pipeline, *accepted: Acceptance) -> list[tuple[str, str | None]]:
    """How these messages ended, once all of them have."""
    async with asyncio.timeout(SECONDS):
        while True:
            rows = [await pipe.store.journal.find(one.id) for one in accepted]
            if all(row is not None and row["state"] != "pending" for row in rows):
                return [(row["state"], row["reason"]) for row in rows if row is not None]
            await asyncio.sleep(0.01)


async def told(pipe: Pipeline, accepted: Acceptance) -> list[str]:
    """What the chat was told in answer to one message."""
    row = await pipe.store.journal.find(accepted.id)
    assert row is not None
    return [part["payload"] for part in await pipe.store.outbox.of_turn(row["turn_id"])]


@pytest.mark.parametrize(
    "text", ["/stop", " /STOP ", "/status@some_bot", "/stop now", "/background look", "/bg look", "/btw why?"]
)
def test_control_messages_are_known_at_the_door(text: str) -> None:
    assert is_control(text)


@pytest.mark.parametrize("text", ["", "stop", "/new", "do not /stop", "/stopping", "/stop/it"])
def test_everything_else_waits_its_turn(text: str) -> None:
    assert not is_control(text)


async def test_N82_stop_ends_the_running_turn_drops_what_waits_and_counts_them(two: tuple[Rig, Slow]) -> None:
    rig, agent = two
    running = await rig.accept("hang 1")
    await until(lambda: agent.begun == ["hang 1"])
    waiting = [await rig.accept(text) for text in ("two", "three")]
    await asyncio.sleep(0.002)  # wall clocks have milliseconds: what is said later is received later
    stop = await rig.accept("/stop")
    assert stop.session_key == key_of()
    assert await ended(rig.pipe, running, *waiting) == [("superseded", "stopped")] * 3
    assert await ended(rig.pipe, stop) == [("answered", None)]
    [answer] = await told(rig.pipe, stop)
    assert "Stopped: 3 messages, 2 of which waited." in answer
    assert (agent.begun, agent.cut) == (["hang 1"], ["hang 1"])
    for one in (running, *waiting):  # the user was told once
        assert await told(rig.pipe, one) == []


async def test_N62_after_a_stop_the_conversation_is_legal_and_goes_on(two: tuple[Rig, Slow]) -> None:
    """Agents have no tools here yet, so what is kept of a stopped turn is what was said, and that it was stopped."""
    rig, agent = two
    running = await rig.accept("hang 1")
    await until(lambda: agent.begun == ["hang 1"])
    stop = await rig.accept("/stop")
    await ended(rig.pipe, running, stop)
    await asyncio.sleep(0.002)
    after = await rig.accept("next")
    assert await ended(rig.pipe, after) == [("answered", None)]
    assert [(e.role, e.text[:9]) for e in agent.turns[-1].history] == [("user", "hang 1"), ("assistant", "(The user")]
    rows = await rig.transcript()
    assert [rows[0], *rows[2:]] == ["hang 1", "next", "done next"]


async def test_stop_with_nothing_running_says_so(two: tuple[Rig, Slow]) -> None:
    rig, _ = two
    stop = await rig.accept("/stop")
    assert await ended(rig.pipe, stop) == [("answered", None)]
    assert "Nothing is running." in (await told(rig.pipe, stop))[0]
    after = await rig.accept("next")
    assert await ended(rig.pipe, after) == [("answered", None)]


async def test_Q12_what_is_said_after_a_stop_is_answered(two: tuple[Rig, Slow]) -> None:
    rig, agent = two
    running = await rig.accept("hang 1")
    await until(lambda: agent.begun == ["hang 1"])
    await asyncio.sleep(0.002)
    stop = await rig.accept("/stop")
    await asyncio.sleep(0.002)
    after = await rig.accept("after")
    assert await ended(rig.pipe, running, stop, after) == [
        ("superseded", "stopped"),
        ("answered", None),
        ("answered", None),
    ]


async def test_stop_ends_a_delay_too(two: tuple[Rig, Slow]) -> None:
    """A message that failed waits for its next attempt: that is stopped as well, now and not after the delay."""
    rig, agent = two
    failing = await rig.accept("fail")
    state = keys.state("turns", key_of())
    client = rig.pipe.servers.of_key(key_of()).client
    async with asyncio.timeout(SECONDS):
        while not agent.begun or await client.hexists(state, "token") or not await client.hexists(state, "until"):
            await asyncio.sleep(0.01)
    stop = await rig.accept("/stop")
    assert await ended(rig.pipe, failing, stop) == [("superseded", "stopped"), ("answered", None)]
    assert "I dropped 1 message that waited" in (await told(rig.pipe, stop))[0]
    assert agent.begun == ["fail"]


async def test_status_during_a_turn_says_since_when_it_runs_and_how_many_wait(two: tuple[Rig, Slow]) -> None:
    rig, agent = two
    running = await rig.accept("hang 1")
    await until(lambda: agent.begun == ["hang 1"])
    waiting = [await rig.accept(text) for text in ("two", "three")]
    status = await rig.accept("/status")
    assert await ended(rig.pipe, status) == [("answered", None)]
    [answer] = await told(rig.pipe, status)
    assert "Working since 20" in answer and "2 more waiting" in answer
    await asyncio.sleep(0.002)
    stop = await rig.accept("/stop")
    await ended(rig.pipe, running, *waiting, stop)
    idle = await rig.accept("/status")
    await ended(rig.pipe, idle)
    assert "Working" not in (await told(rig.pipe, idle))[0]


async def test_a_stop_gets_through_when_turns_fill_the_worker(make_settings: Callable[..., Settings]) -> None:
    agent = Slow()
    async with open_pipeline(make_settings(partitions=1, log_level="error")) as pipe:
        rig = Rig(pipe, agent)
        async with working(pipe, agent, slots=2):
            running = [await rig.accept(f"hang {n}", chat=f"c{n}") for n in range(6)]
            await until(lambda: len(agent.begun) == 2)
            stopped = []
            for n in range(6):
                stop = await rig.accept("/stop", chat=f"c{n}")
                await ended(pipe, stop)
                stopped.append(stop)
            assert [state for state, _ in await ended(pipe, *running)] == ["superseded"] * 6


async def test_control_messages_do_not_disturb_the_order_of_their_conversation(rig: Rig) -> None:
    for text in ("one", "/status", "two", "/stop", "/status"):
        await rig.accept(text)
    route = await rig.pipe.store.journal.route(key_of())
    apart = await rig.pipe.store.journal.route(control_key(key_of()))
    assert route is not None and apart is not None
    assert (route["last_seq"], apart["last_seq"]) == (2, 3)
    await rig.turns((await rig.start(rig.pipe.control, control_key(key_of())))[1] or pytest.fail("not leased"))
    await rig.run_turns()
    rows = [await rig.pipe.store.journal.route(key) for key in (key_of(), control_key(key_of()))]
    assert [row["done_seq"] for row in rows if row is not None] == [2, 3]


async def test_a_stop_is_heard_by_the_next_holder_when_the_worker_that_had_it_is_gone(rig: Rig) -> None:
    agent = Slow()
    rig.agent = agent
    first = await rig.accept("one")
    lease = await rig.lease()  # and its worker dies here
    rig.pipe.turns.renewal.let_go(lease)
    await rig.accept("/stop")
    await rig.turns((await rig.start(rig.pipe.control, control_key(key_of())))[1] or pytest.fail("not leased"))
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.run_turns()
    row = await rig.pipe.store.journal.find(first.id)
    assert row is not None and (row["state"], row["reason"]) == ("superseded", "stopped")
    assert agent.begun == []


async def test_a_stop_that_no_channel_carried_is_seen_by_the_renewal(rig: Rig) -> None:
    await rig.accept("one")
    lease = await rig.lease()
    cut: list[bool] = []
    lease.turn_begins(1, lambda: cut.append(True))
    await rig.pipe.servers.of_key(key_of()).client.hset(keys.state("turns", key_of()), "stop", "5")
    for _ in range(2):
        await rig.pipe.turns.renewal.renew(lease.server, [lease])
    assert (cut, lease.drop_until_ms, lease.cut_short) == ([True], 5, True)


async def test_the_housekeeper_wakes_control_messages_that_redis_lost(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(sweep_seconds=0.05, log_level="error")) as pipe:
        rig, stopping = Rig(pipe), asyncio.Event()
        await rig.accept("/status")
        await pipe.servers.all[0].client.flushall()
        keeping = asyncio.create_task(Housekeeper(pipe).run(stopping))
        async with asyncio.timeout(SECONDS):
            while not (await pipe.control.awake([control_key(key_of())]))[0]:
                await asyncio.sleep(0.01)
        stopping.set()
        await keeping
        assert await pipe.turns.awake([control_key(key_of())]) == [False]


async def test_N83_a_stop_from_another_chat_on_the_same_session_stops_it(two: tuple[Rig, Slow]) -> None:
    rig, agent = two
    begin = await rig.accept("/title ours", chat="a")
    await ended(rig.pipe, begin)
    meet = await rig.accept("/resume ours", chat="b")
    await ended(rig.pipe, meet)
    running = await rig.accept("hang", chat="a")
    await until(lambda: agent.begun == ["hang"])
    stop = await rig.accept("/stop", chat="b")
    assert await ended(rig.pipe, running, stop) == [("superseded", "stopped"), ("answered", None)]


async def test_every_message_of_a_burst_with_stops_ends_in_exactly_one_state(two: tuple[Rig, Slow]) -> None:
    rig, _ = two
    sent = []
    for n in range(40):
        sent.append(await rig.accept("/stop" if n % 5 == 4 else f"m{n}"))
    states = Counter(state for state, _ in await ended(rig.pipe, *sent))
    assert set(states) <= {"answered", "superseded"} and sum(states.values()) == 40


async def test_control_messages_own_no_session_and_are_in_no_list_and_no_export(two: tuple[Rig, Slow]) -> None:
    rig, _ = two
    alone = await rig.accept("/status", chat="nobody else spoke here")
    await ended(rig.pipe, await rig.accept("hello"))
    await ended(rig.pipe, await rig.accept("/status"), await rig.accept("/stop"), alone)
    store = rig.pipe.store
    for table in ("sessions", "turns"):
        assert {row["session_key"] for row in await ask(store, f"SELECT session_key FROM {table}")} == {key_of()}
    assert len(await ask(store, "SELECT session_id FROM messages")) == 2
    found = [one async for one in export_all(store)]
    exported = [one.session.session_key for one in found if isinstance(one, ExportedSession)]
    assert exported == [key_of()] == [row["session_key"] for row in await store.sessions.listed(10)]
    assert await store.sessions.find(control_key(key_of())) is None


async def test_a_control_message_that_a_second_worker_answers_too_is_answered_once(rig: Rig) -> None:
    accepted = await rig.accept("/status")
    row = await rig.pipe.store.journal.find(accepted.id)
    await rig.run_turns()
    assert row is not None
    before = await contents(rig.pipe.store)
    await rig.pipe.control.put(row["session_key"], row["seq"], row["payload"].encode())  # by a receiver that was slow
    await rig.run_turns()
    assert await contents(rig.pipe.store) == before
    assert [name for name in await rig.residue() if name.startswith("kt:control")] == []


@pytest.mark.parametrize("lane", ["journal", "redis"])
async def test_a_worker_that_was_overtaken_in_the_middle_of_a_control_message_adds_no_second_answer(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    async with open_pipeline(make_settings(durability=lane)) as pipe:
        rig = Rig(pipe)
        accepted, key = await rig.accept("/status"), control_key(key_of())
        run = commands.run
        overtaken: list[commands.CommandCall] = []

        async def overtake(
            call: commands.CommandCall,
        ) -> commands.CommandAnswer | commands.Again | commands.GivenAnswer | commands.Instead:
            if not overtaken:
                overtaken.append(call)
                await rig.expire_lease(pipe.control, key)
                await pipe.control.recover(key)
                await rig.run_turns()  # another worker
            return await run(call)

        monkeypatch.setattr(commands, "run", overtake)
        await rig.run_turns()
        assert len(overtaken) == 1 and await ended(pipe, accepted) == [("answered", None)]
        assert len(await told(pipe, accepted)) == len(await ask(pipe.store, "SELECT id FROM outbox")) == 1
        assert [name for name in await rig.residue() if name.startswith("kt:control")] == []


async def test_control_messages_that_redis_lost_are_answered_first(rig: Rig) -> None:
    lost = await rig.accept("/status")
    await rig.pipe.servers.all[0].client.flushall()
    behind = await rig.accept("/stop")
    await rig.run_turns()
    assert await ended(rig.pipe, lost, behind) == [("answered", None)] * 2
    turns = await ask(rig.pipe.store, "SELECT turn_id FROM inbox ORDER BY seq")
    assert turns == await ask(rig.pipe.store, "SELECT turn_id FROM outbox ORDER BY id")


async def test_a_control_command_that_raises_is_answered_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(call: commands.CommandCall) -> commands.CommandAnswer:
        raise RuntimeError("as told")

    monkeypatch.setattr(commands, "run", fails)
    accepted = await rig.accept("/status")
    await rig.run_turns()
    assert await ended(rig.pipe, accepted) == [("answered", None)]
    assert "Sorry, /status did not work." in (await told(rig.pipe, accepted))[0]


async def test_a_control_message_that_cannot_be_ended_is_tried_again_and_then_set_aside(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be kept here is the answer; its attempts are counted in Redis and in the journal."""
    keep = rig.pipe.store.commit_control
    failed: list[int] = []

    async def breaks(commit: ControlCommit) -> ControlCommitted:
        if commit.ending.state is State.ANSWERED:
            failed.append(commit.attempts)
            raise RuntimeError("as told")
        return await keep(commit)

    monkeypatch.setattr(rig.pipe.store, "commit_control", breaks)
    accepted, limit = await rig.accept("/status"), rig.pipe.settings.max_attempts
    for n in range(1, limit):
        await rig.run_turns()
        row = await rig.pipe.store.journal.find(accepted.id)
        assert row is not None and (row["state"], row["attempts"]) == ("pending", n)
        await free(rig.pipe.control, control_key(key_of()))  # out of its delay
    await rig.run_turns()
    assert await ended(rig.pipe, accepted) == [("dead", "error")]
    assert failed == list(range(1, limit + 1))
    assert "set aside" in (await told(rig.pipe, accepted))[0]


async def test_a_control_message_that_killed_too_many_workers_is_set_aside(rig: Rig) -> None:
    accepted = await rig.accept("/status")
    limit = rig.pipe.settings.max_attempts * CRASH_FACTOR
    await rig.pipe.store.journal.count_attempt(accepted.id, limit, "error")
    await rig.run_turns()
    assert await ended(rig.pipe, accepted) == [("dead", "crashed")]


async def test_a_control_message_that_cannot_be_read_is_set_aside_and_the_next_is_answered(rig: Rig) -> None:
    broken = await rig.accept("/stop")
    await write(rig.pipe.store, "UPDATE inbox SET payload = '{}' WHERE id = :id", id=broken.id)
    after = await rig.accept("/status")
    await rig.run_turns()
    assert await ended(rig.pipe, broken, after) == [("dead", "malformed"), ("answered", None)]


@pytest.mark.parametrize("durability", ["journal", "redis"])
async def test_a_control_message_is_recorded_with_its_attempts(
    make_settings: Callable[..., Settings], durability: str
) -> None:
    async with open_pipeline(make_settings(durability=durability)) as pipe:
        rig = Rig(pipe)
        for failed in range(2):
            accepted = await rig.accept("/status")
            lease = await rig.lease()
            if failed:
                await lease.begin(lease.mail[0].seq)
                await lease.release(spent=True)
                lease = await rig.lease()
            await rig.turns(lease)
            row = await pipe.store.journal.find(accepted.id)
            assert row is not None and (row["state"], row["attempts"]) == ("answered", 1 + failed)


async def test_a_control_message_that_cannot_be_read_has_had_no_attempt(rig: Rig) -> None:
    broken = await rig.accept("/stop")
    await write(rig.pipe.store, "UPDATE inbox SET payload = '{}' WHERE id = :id", id=broken.id)
    await rig.run_turns()
    row = await rig.pipe.store.journal.find(broken.id)
    assert row is not None and (row["state"], row["attempts"]) == ("dead", 0)


async def test_a_trace_shows_when_a_control_message_ended(rig: Rig) -> None:
    accepted = await rig.accept("/status")
    await rig.run_turns()
    found = await trace(rig.pipe, accepted.id)
    assert found is not None and [passed.stage for passed in found.stages] == ["received", "committed"]


async def test_a_key_of_control_messages_is_shown_without_a_session(rig: Rig) -> None:
    await rig.accept("/status")
    shown = (await mailbox_of(rig.pipe, control_key(key_of()))).journal
    assert isinstance(shown, KeyInJournal) and (shown.session_id, shown.pending) == (None, 1)


@pytest.mark.parametrize("text", ["not a command", "/new"])
async def test_nothing_but_a_control_message_is_obeyed_under_a_control_key(rig: Rig, text: str) -> None:
    inbound, key = an_inbound(text), control_key(key_of())
    record = encode_mail(inbound)
    accepted = await rig.pipe.store.journal.accept(inbound, record, key, 10)
    await rig.pipe.control.put(key, accepted.seq, record)
    claim, lease = await rig.start(rig.pipe.control, key)
    assert claim is Claim.LEASED and lease is not None
    await rig.turns(lease)
    row = await rig.pipe.store.journal.find(inbound.id)
    assert row is not None and (row["state"], row["reason"], row["attempts"]) == ("dead", "malformed", 1)
    assert await rig.pipe.store.sessions.listed(10) == []


async def test_stop_reaches_the_running_turn_at_once_and_not_with_the_next_renewal(
    make_settings: Callable[..., Settings],
) -> None:
    settings = make_settings(lease_seconds=36_000, heartbeat_seconds=12_000, log_level="error")
    async with open_pipeline(settings) as pipe, working(pipe, agent := Slow()):
        rig = Rig(pipe, agent)
        running = await rig.accept("hang")
        await until(lambda: agent.begun == ["hang"])
        client: Any = pipe.servers.all[0].client

        async def listening() -> bool:
            return bool(await client.pubsub_channels("rq:pubsub:*"))

        async with asyncio.timeout(SECONDS):
            while not await listening():
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.002)  # wall clocks have milliseconds: what is said later is received later
        await rig.accept("/stop")
        assert await ended(pipe, running) == [("superseded", "stopped")]


async def test_a_turn_that_failed_is_tried_again_by_the_same_agent_and_not_isolated(
    make_settings: Callable[..., Settings],
) -> None:
    """Only an attempt whose end nobody saw runs in a process of its own."""
    settings = make_settings(log_level="error", max_attempts=3)
    async with open_pipeline(settings) as pipe, working(pipe, agent := Slow()):
        rig = Rig(pipe, agent)
        failing = await rig.accept("fail")
        assert await ended(pipe, failing) == [("dead", "error")]
        assert agent.begun == ["fail"] * 3  # all of them in this process

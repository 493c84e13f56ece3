"""A message that comes while its key runs a turn: each busy mode, with the sender in one process and the turn in another."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from keyturn import Began, Call, Delta, Done, Ended, Entry, Event, Reply, Row, Took, Turn
from shared import keys
from shared.busy import BusyMode
from shared.context.marks import NAME, TOOL_CALL_ID, TOOL_CALLS, media_of
from shared.door import Acceptance, accept
from shared.failpoints import Injected
from shared.messages import Inbound, Kind, Media, OwnInbound
from shared.part_record import decode_part
from shared.pipeline import Pipeline, open_pipeline
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.working import working

SECONDS = 60
MakeSettings = Callable[..., Settings]
GROUP = {"chat_type": "group", "chat": "g1"}
GROUP_KEY = "agent:main:webhook:group:g1"


class Holding:
    """Holds a turn that is told to `hold` until it is let go, and takes in what its inbox has by then. Notes what ran."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cut: list[str] = []
        self.turns: list[Turn] = []
        self.at_once = self.most_at_once = 0
        self.let_go, self.may_finish = asyncio.Event(), asyncio.Event()
        self.may_finish.set()
        self.heard: list[str] = []
        self.wants_inbox = 0  # take only when so much waits
        self.gets_to_show = True
        self.takes_again = True

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.mail[0].text
        self.turns.append(turn)
        self.begun.append(text)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            heard: list[str] = []
            self.heard = heard
            if text.startswith("hold"):
                yield Delta("so far")
                await self.let_go.wait()
                while turn.inbox.waiting() < self.wants_inbox:
                    await asyncio.sleep(0.005)
                while taken := await turn.inbox.take():
                    heard += [inbound.text for inbound in taken]
                    if self.gets_to_show:
                        yield Took(tuple(inbound.id for inbound in taken))
                    if not self.takes_again:
                        break
                await self.may_finish.wait()
            yield Done((Reply(" ".join([f"done {text}", *heard])),))
        except (asyncio.CancelledError, GeneratorExit):
            self.cut.append(text)
            raise
        finally:
            self.at_once -= 1


class Two:
    """A process that receives, and another one that runs the turns."""

    def __init__(self, receiver: Pipeline, agent: Holding) -> None:
        self.pipe = receiver
        self.agent = agent
        self.rig = Rig(receiver)

    async def say(self, text: str, **about: Any) -> Acceptance:
        return await self.rig.accept(text, **about)

    async def running(self, text: str = "hold 1", **about: Any) -> Acceptance:
        """A turn that runs until it is let go."""
        accepted = await self.say(text, **about)
        await until(lambda: text in self.agent.begun)
        return accepted

    async def ended(self, *accepted: Acceptance) -> list[tuple[str, str | None]]:
        """How these messages ended, once all of them have."""
        async with asyncio.timeout(SECONDS):
            while True:
                rows = [await self.pipe.store.journal.find(one.id) for one in accepted]
                if all(row is not None and row["state"] != "pending" for row in rows):
                    return [(row["state"], row["reason"]) for row in rows if row is not None]
                await asyncio.sleep(0.01)

    async def told(self, accepted: Acceptance) -> str:
        row = await self.pipe.store.journal.find(accepted.id)
        assert row is not None
        return "".join(part["payload"] for part in await self.pipe.store.outbox.of_turn(row["turn_id"]))

    async def at_rest(self, key: str = key_of()) -> None:
        client = self.pipe.servers.of_key(key).client
        async with asyncio.timeout(SECONDS):
            while await client.exists(keys.state("turns", key), keys.mail("turns", key)):
                await asyncio.sleep(0.01)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def two_processes(settings: Settings, agent: Any = None) -> AsyncIterator[Two]:
    agent = agent or Holding()
    async with open_pipeline(settings) as receiver, open_pipeline(settings) as worker, working(worker, agent):
        yield Two(receiver, agent)


def in_mode(mode: str, **more: Any) -> dict[str, Any]:
    return {"busy_mode": mode, "log_level": "error", **more}


@pytest.fixture(params=["journal", "redis"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_Q3_N68_queue_gives_each_message_a_turn_of_its_own_in_order(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("two", "three")]]
        two.agent.let_go.set()
        assert await two.ended(*said) == [("answered", None)] * 3
        assert two.agent.begun == ["hold 1", "two", "three"] and two.agent.most_at_once == 1


async def test_Q5_steer_brings_a_message_into_the_running_turn_once(
    make_settings: MakeSettings, durability: str
) -> None:
    async with two_processes(make_settings(**in_mode("steer", durability=durability))) as two:
        running = await two.running()
        more = [await two.say(text) for text in ("two", "three")]
        two.agent.wants_inbox = 2
        two.agent.let_go.set()
        assert await two.ended(running, *more) == [("answered", None), ("merged", None), ("merged", None)]
        await two.at_rest()
        assert two.agent.begun == ["hold 1"]
        assert await two.rig.transcript() == ["hold 1", "two", "three", "done hold 1 two three"]
        assert "done hold 1 two three" in await two.told(running)
        after = await two.say("after")
        assert await two.ended(after) == [("answered", None)]


async def test_Q17_N70_ag30_a_message_that_was_taken_and_not_shown_to_the_model_is_still_mail(
    make_settings: MakeSettings, durability: str
) -> None:
    async with two_processes(make_settings(**in_mode("steer", durability=durability))) as two:
        running = await two.running()
        two.agent.gets_to_show = False
        more = await two.say("two")
        two.agent.wants_inbox = 1
        two.agent.let_go.set()
        assert await two.ended(running, more) == [("answered", None), ("answered", None)]
        assert two.agent.begun == ["hold 1", "two"]


async def test_one_senders_message_never_joins_anothers_turn(make_settings: MakeSettings) -> None:
    """In a shared conversation everybody's mail has one key. What Ann says behind Bob's message still reaches Ann's turn."""
    async with two_processes(make_settings(**in_mode("steer", group_sessions_per_user=False))) as two:
        running = await two.running(**GROUP)
        other = await accept(two.pipe, by("bob", "of bob", **GROUP))
        mine = await two.say("of ann", **GROUP)
        two.agent.wants_inbox = 1
        two.agent.let_go.set()
        states = await two.ended(running, other, mine)
        assert [state for state, _ in states] == ["answered", "answered", "merged"]
        await two.at_rest(GROUP_KEY)
        assert two.agent.begun == ["hold 1", "of bob"]
        after = await two.say("after", **GROUP)
        assert await two.ended(after) == [("answered", None)]


def by(user: str, text: str, **about: Any) -> Inbound:
    inbound = an_inbound(text, **about)
    return replace(inbound, source=replace(inbound.source, user=user))


async def test_a_command_is_not_steered_and_nothing_overtakes_it(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("steer"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("two", "/title ours", "three")]]
        two.agent.wants_inbox = 1
        two.agent.let_go.set()
        states = await two.ended(*said)
        assert [state for state, _ in states] == ["answered", "merged", "answered", "answered"]
        assert two.agent.begun == ["hold 1", "three"]


@pytest.mark.parametrize("mode", ["queue", "steer", "reject"])
async def test_Q12_new_ends_the_running_turn_then_begins_anew_and_what_follows_runs_once(
    make_settings: MakeSettings, durability: str, mode: str
) -> None:
    async with two_processes(make_settings(**in_mode(mode, durability=durability))) as two:
        running = await two.running()
        new = await two.say("/new")
        assert await two.ended(running, new) == [("superseded", "interrupted"), ("answered", None)]
        after = await two.say("after")
        assert await two.ended(after) == [("answered", None)]
        await two.at_rest()
        assert two.agent.begun == ["hold 1", "after"] and two.agent.cut == ["hold 1"]
        assert list(two.agent.turns[-1].history) == []


async def test_Q12_new_drops_nothing_that_was_said_before_it_and_a_new_that_is_refused_ends_no_turn(
    make_settings: MakeSettings,
) -> None:
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("two", "/new please")]]
        await asyncio.sleep(0.1)  # long enough for it to be seen, were it looked for
        assert two.agent.cut == []
        said.append(await two.say("/reset"))
        states = await two.ended(*said)
        assert states == [("superseded", "interrupted"), *[("answered", None)] * 3]
        assert two.agent.begun == ["hold 1", "two"]


async def test_N81_scheduled_mail_neither_steers_nor_interrupts(make_settings: MakeSettings) -> None:
    for mode in ("steer", "interrupt", "rollback", "reject"):
        async with two_processes(make_settings(**in_mode(mode))) as two:
            running = await two.running(chat=mode)
            said = an_inbound("due", chat=mode)
            fields = {name: getattr(said, name) for name in ("id", "event_id", "source", "text", "received_at")}
            fire = await accept(two.pipe, OwnInbound(**fields, purpose=Kind.FIRE))
            await asyncio.sleep(0.1)  # long enough for it to be seen, were it looked at
            two.agent.let_go.set()
            assert [state for state, _ in await two.ended(running, fire)] == ["answered", "answered"]
            assert two.agent.begun == ["hold 1", "due"] and two.agent.cut == []


async def test_Q4_ag25_interrupt_stops_the_turn_and_gives_each_new_message_its_own(
    make_settings: MakeSettings, durability: str
) -> None:
    async with two_processes(make_settings(**in_mode("interrupt", durability=durability))) as two:
        said = [await two.running()]
        said += [await two.say(f"{n}") for n in range(5)]
        states = await two.ended(*said)
        assert states[0] == ("superseded", "interrupted") and [s for s, _ in states[1:]].count("answered") >= 1
        assert {state for state, _ in states[1:]} <= {"answered", "superseded"}
        await two.at_rest()
        assert two.agent.begun == ["hold 1", "0", "1", "2", "3", "4"] and two.agent.most_at_once == 1
        assert (await two.rig.transcript())[:4] == [
            "hold 1",
            "so far",
            "(The user sent a new message before this was finished.)",
            "0",
        ]


class Working:
    """Calls one tool that has an effect, one that hangs, and plans a third."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.turns.append(turn)
        if not turn.mail[0].text.startswith("hold"):
            yield Done((Reply(f"done {turn.mail[0].text}"),))
            return
        made = [{"id": f"c{n}", "name": name, "arguments": "{}"} for n, name in enumerate(("pay", "wait", "never"))]
        row = Entry("assistant", "", data={TOOL_CALLS: made})
        yield Row(row)
        await turn.steps.response(row)
        pay, wait = Call("c0", "pay"), Call("c1", "wait")
        yield Began(pay)
        stepped = await turn.steps.call(pay, self.paid)
        yield Ended(pay, stepped.ok, stepped.text)
        yield Row(Entry("tool", stepped.text, data={TOOL_CALL_ID: "c0", NAME: "pay"}))
        yield Began(wait)
        self.hangs.set()
        await asyncio.Event().wait()

    async def paid(self, key: str) -> str:
        return "paid"


async def test_ag21_an_interrupted_batch_keeps_results_and_says_what_was_cut_and_not_run(
    make_settings: MakeSettings,
) -> None:
    agent = Working()
    async with two_processes(make_settings(**in_mode("interrupt")), agent) as two:
        running = await two.say("hold 1")
        await until(agent.hangs.is_set)
        after = await two.say("two")
        assert await two.ended(running, after) == [("superseded", "interrupted"), ("answered", None)]
        rows = agent.turns[-1].history
        assert [row.role for row in rows] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
        assert rows[2].text == "paid" and "Interrupted" in rows[3].text and "Not run" in rows[4].text


async def test_ag26_rollback_keeps_the_users_row_and_names_what_cannot_be_taken_back(
    make_settings: MakeSettings,
) -> None:
    agent = Working()
    async with two_processes(make_settings(**in_mode("rollback")), agent) as two:
        running = await two.say("hold 1")
        await until(agent.hangs.is_set)
        after = await two.say("two")
        assert await two.ended(running, after) == [("superseded", "rolled back"), ("answered", None)]
        rows = agent.turns[-1].history
        assert [row.role for row in rows] == ["user", "assistant"] and rows[0].text == "hold 1"
        assert rows[1].text.endswith("Not taken back, because it had its effect or may have had it: pay.")


async def test_reject_refuses_what_comes_during_a_turn_and_says_so(
    make_settings: MakeSettings, durability: str
) -> None:
    async with two_processes(make_settings(**in_mode("reject", durability=durability))) as two:
        running = await two.running()
        more = [await two.say("two"), await two.say("three")]
        assert await two.ended(*more) == [("rejected", "busy")] * 2
        assert "I did not take this one" in await two.told(more[0])
        command = await two.say("/usage")
        two.agent.let_go.set()
        assert await two.ended(running, command) == [("answered", None)] * 2
        await two.at_rest()
        after = await two.say("after")
        assert await two.ended(after) == [("answered", None)]
        assert two.agent.begun == ["hold 1", "after"]


async def test_ag33_collect_makes_one_turn_per_person_of_what_waits(
    make_settings: MakeSettings, durability: str
) -> None:
    settings = make_settings(**in_mode("collect", group_sessions_per_user=False, durability=durability))
    async with two_processes(settings) as two:
        running = await two.running(**GROUP)
        said = [await accept(two.pipe, by(f"p{n % 2}", f"{n}", **GROUP)) for n in range(20)]
        two.agent.let_go.set()
        states = [state for state, _ in await two.ended(running, *said)]
        assert Counter(states) == {"answered": 3, "merged": 18}
        assert two.agent.begun[1:] == ["\n\n".join(str(n) for n in range(start, 20, 2)) for start in (0, 1)]
        await two.at_rest(GROUP_KEY)
        after = await two.say("after", **GROUP)
        assert await two.ended(after) == [("answered", None)]


@pytest.mark.parametrize("mode", list(BusyMode))
async def test_of_50_messages_at_a_running_turn_each_ends_in_a_recorded_state(
    make_settings: MakeSettings, mode: BusyMode
) -> None:
    async with two_processes(make_settings(**in_mode(mode.value))) as two:
        running = await two.running()
        said = await asyncio.gather(*(two.say(f"{n}") for n in range(50)))
        two.agent.wants_inbox = 50 if mode is BusyMode.STEER else 0
        two.agent.let_go.set()
        states = [state for state, _ in await two.ended(running, *said)]
        await two.at_rest()
        assert two.agent.most_at_once == 1 and not await two.pipe.store.journal.pending(key_of(), after=0, limit=1)
        expected = {
            BusyMode.QUEUE: {"answered": 51},
            BusyMode.COLLECT: {"answered": 2, "merged": 49},
            BusyMode.STEER: {"answered": 1, "merged": 50},
            BusyMode.ROLLBACK: None,
            BusyMode.INTERRUPT: None,
            BusyMode.REJECT: None,
        }[mode]
        assert expected is None or Counter(states) == expected
        after = await two.say("after")
        assert await two.ended(after) == [("answered", None)]


async def test_the_mode_is_the_chats_else_the_platforms_else_the_default(make_settings: MakeSettings) -> None:
    block = make_settings().webhook.model_copy(update={"busy_mode": BusyMode.REJECT})  # type: ignore[attr-defined]
    assert isinstance(block, WebhookSettings)
    chats = {"webhook:c2": BusyMode.INTERRUPT}
    async with two_processes(make_settings(**in_mode("queue", webhook=block, busy_chats=chats))) as two:
        first = await two.running()
        assert await two.ended(await two.say("refused")) == [("rejected", "busy")]
        second = await two.running("hold 2", chat="c2")
        assert await two.ended(await two.say("next", chat="c2"), second) == [
            ("answered", None),
            ("superseded", "interrupted"),
        ]
        two.agent.let_go.set()
        assert await two.ended(first) == [("answered", None)]


async def test_the_mode_that_queue_sets_counts_at_once_and_is_kept_with_the_session(
    make_settings: MakeSettings,
) -> None:
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        running = await two.running()
        waits = await two.say("two")
        command = await two.say("/queue mode interrupt")
        assert await two.ended(command) == [("answered", None)]
        assert "Mode interrupt" in await two.told(command)
        after = await two.say("three")
        assert await two.ended(running, waits, after) == [
            ("superseded", "interrupted"),
            ("answered", None),
            ("answered", None),
        ]
        await two.at_rest()
        again = await two.running("hold 2")
        await two.say("four")
        assert await two.ended(again) == [("superseded", "interrupted")]
        for text in ("/queue mode default", "/new"):
            assert await two.ended(await two.say(text)) == [("answered", None)]
        shown = await two.say("/queue")
        await two.ended(shown)
        assert "Mode queue" in await two.told(shown)


class HeldApart(Holding):
    """Holds each turn by a gate of its own, by its text."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.gates = {text: asyncio.Event() for text in texts}

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.mail[0].text
        self.begun.append(text)
        if text in self.gates:
            await self.gates[text].wait()
        yield Done((Reply(f"done {text}"),))


async def test_the_mode_that_queue_sets_ends_with_its_session_also_under_the_same_lease(
    make_settings: MakeSettings,
) -> None:
    agent = HeldApart("hold 1", "hold 2")
    async with two_processes(make_settings(**in_mode("queue")), agent) as two:
        running = await two.running("hold 1")
        assert await two.ended(await two.say("/queue mode interrupt")) == [("answered", None)]
        new, in_new = await two.say("/new"), await two.say("hold 2")
        assert await two.ended(running, new) == [("superseded", "interrupted"), ("answered", None)]
        await until(lambda: "hold 2" in agent.begun)
        last = await two.say("three")
        for _ in range(3):  # control messages: in the mode interrupt the turn has ended by then
            await two.ended(await two.say("/queue"))
        agent.gates["hold 2"].set()
        assert await two.ended(in_new, last) == [("answered", None)] * 2


async def test_queue_shows_what_waits_behind_the_running_turn(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("two", "three")]]
        shown = await two.say("/queue")
        assert await two.ended(shown) == [("answered", None)]
        answer = await two.told(shown)
        assert "2 messages wait:" in answer and "1. two" in answer and "2. three" in answer
        for text in ("/queue mode", "/queue mode quick", "/queue jump"):
            wrong = await two.say(text)
            await two.ended(wrong)
            assert "one of queue, collect, steer, interrupt, rollback, reject, default" in await two.told(wrong)
        two.agent.let_go.set()
        await two.ended(*said)


async def test_steer_reaches_the_running_turn_in_every_mode_past_what_waits(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("two", "/steer to the left")]]
        two.agent.wants_inbox = 1
        two.agent.let_go.set()
        assert [state for state, _ in await two.ended(*said)] == ["answered", "answered", "merged"]
        await two.at_rest()
        assert await two.rig.transcript() == ["hold 1", "to the left", "done hold 1 to the left", "two", "done two"]
        alone = await two.say("/steer straight on")
        empty = await two.say("/steer")
        assert await two.ended(alone, empty) == [("answered", None)] * 2
        assert "done straight on" in await two.told(alone) and "Say /steer and" in await two.told(empty)


async def test_a_message_that_nobody_told_the_turn_of_is_seen_all_the_same(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published may get lost: the turn also looks by itself."""
    monkeypatch.setattr("workers.process.wakes.Wakes.tell", lambda *_: None)
    async with two_processes(make_settings(**in_mode("interrupt", heartbeat_seconds=0.05))) as two:
        running = await two.running()
        after = await two.say("two")
        assert await two.ended(running, after) == [("superseded", "interrupted"), ("answered", None)]


async def test_mail_that_was_merged_ahead_of_others_is_not_answered_again(make_settings: MakeSettings) -> None:
    """A worker that dies between its commit and telling Redis leaves mail in the mailbox that has ended."""
    async with two_processes(make_settings(**in_mode("queue"))) as two:
        said = [await two.running(), *[await two.say(text) for text in ("hold 2", "/steer left", "three")]]
        client, mail = two.pipe.servers.of_key(key_of()).client, keys.mail("turns", key_of())
        before: Any = await client.zrange(mail, 0, -1, withscores=True)
        two.agent.wants_inbox = 1
        two.agent.let_go.set()
        await until(lambda: "hold 2" in two.agent.begun)
        await client.zadd(mail, dict(before))
        two.agent.wants_inbox = 0
        assert [state for state, _ in await two.ended(*said)] == ["answered", "answered", "merged", "answered"]
        await two.at_rest()
        assert two.agent.begun == ["hold 1", "hold 2", "three"]


async def test_Q6_Q15_ag34_a_chat_is_told_once_in_30_seconds_that_its_message_waits_and_where(
    make_settings: MakeSettings,
) -> None:
    async with two_processes(make_settings(**in_mode("steer", heartbeat_seconds=0.05))) as two:
        two.agent.gets_to_show = False  # so none of them is steered
        here = {"platform": "local"}
        running = await two.running(**here)
        said = [await two.say(text, **here) for text in ("two", "three")]
        notices: list[dict[str, Any]] = []
        async with asyncio.timeout(SECONDS):
            while not notices:
                await asyncio.sleep(0.02)
                for one in said:
                    notices += await two.pipe.store.outbox.of_turn(f"wait_{one.id}")
        said.append(await two.say("four", **here))
        await asyncio.sleep(0.3)  # several heartbeats
        assert await two.pipe.store.outbox.of_turn(f"wait_{said[-1].id}") == []
        [notice] = notices
        text = decode_part(notice["payload"]).text
        assert "it is number" in text and "in line" in text
        assert re.findall(r"\d+", text) in (["1"], ["2"])  # its place, and no limit of the running turn
        programs = await two.running("hold 2")
        silent = await two.say("silent")
        await asyncio.sleep(0.2)
        assert await two.pipe.store.outbox.of_turn(f"wait_{silent.id}") == []
        two.agent.let_go.set()
        assert {state for state, _ in await two.ended(running, programs, silent, *said)} == {"answered"}


async def test_what_a_turn_answers_together_neither_joins_it_nor_waits_behind_it(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("steer", heartbeat_seconds=0.05))) as two:
        photos = [replace(an_inbound(text, platform="local"), album="a1") for text in ("hold 1", "two", "three")]
        said = [await accept(two.pipe, photo) for photo in photos]
        await until(lambda: two.agent.begun)
        [album] = two.agent.begun
        await asyncio.sleep(0.3)  # several heartbeats: each of them finds mail in the mailbox
        notices = [row for one in said for row in await two.pipe.store.outbox.of_turn(f"wait_{one.id}")]
        shown = await two.say("/queue", platform="local")
        assert await two.ended(shown) == [("answered", None)]
        assert "Nothing waits." in await two.told(shown)
        two.agent.let_go.set()
        assert await two.ended(*said) == [("answered", None), ("merged", None), ("merged", None)]
        assert album == "hold 1\ntwo\nthree" and two.agent.heard == [] and notices == []


async def test_N69_keys_at_rest_hold_no_lock_and_one_with_a_waiter_keeps_its_own(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("queue", partitions=4))) as two:
        running, waiter = await two.running(), await two.say("two")
        others = [await two.say("hello", chat=f"idle-{n}") for n in range(300)]
        assert await two.ended(*others) == [("answered", None)] * 300
        for n in range(300):
            await two.at_rest(key_of(f"idle-{n}"))
        client = two.pipe.servers.of_key(key_of()).client
        assert [name for name in await two.rig.residue() if name.startswith("kt:turns") and "idle-" in name] == []
        assert await client.exists(keys.state("turns", key_of()), keys.mail("turns", key_of())) == 2
        two.agent.let_go.set()
        assert await two.ended(running, waiter) == [("answered", None)] * 2


async def test_N77_a_picture_and_a_text_that_wait_together_become_one_row(make_settings: MakeSettings) -> None:
    photo = Media("https://a/1.png", "image/png")
    async with open_pipeline(make_settings(**in_mode("collect"))) as pipe:
        rig = Rig(pipe)
        await accept(pipe, replace(an_inbound(""), media=(photo,)))
        await rig.accept("what is this?")
        await rig.run_turns()
        session, _ = await pipe.store.transcript.load(key_of(), "")
        [row] = [row for row in session.history if row.role == "user"]
        assert (row.text, tuple(media_of(row))) == ("what is this?", (photo,))


async def test_N74_N75_what_a_turn_has_no_room_for_gets_turns_of_its_own_next(make_settings: MakeSettings) -> None:
    async with two_processes(make_settings(**in_mode("steer"))) as two:
        said = [await two.running(), *[await two.say(f"{n}") for n in range(5)]]
        two.agent.wants_inbox, two.agent.takes_again = 5, False
        two.agent.let_go.set()
        states = [state for state, _ in await two.ended(*said)]
        assert states == ["answered", "merged", "merged", "merged", "answered", "answered"]
        assert two.agent.begun == ["hold 1", "3", "4"]


async def test_Q2_Q10_what_came_before_the_turn_began_neither_ends_nor_joins_it(make_settings: MakeSettings) -> None:
    for mode in ("interrupt", "reject"):
        async with open_pipeline(make_settings(**in_mode(mode))) as pipe:
            agent = Holding()
            rig = Rig(pipe, agent)
            said = [await rig.accept(text, chat=mode) for text in ("one", "two", "/usage")]
            await rig.run_turns(key_of(mode))
            assert [state for state, _ in await Two(pipe, agent).ended(*said)] == ["answered"] * 3
            assert agent.begun == ["one", "two"] and agent.most_at_once == 1
            assert await pipe.turns.awake([key_of(mode)]) == [False]


@pytest.mark.parametrize(
    ("point", "mode", "state"),
    [
        ("steer.before_take", "steer", "merged"),
        ("steer.after_take", "steer", "merged"),
        ("interrupt.before_stop", "interrupt", "answered"),
        ("interrupt.before_stop", "rollback", "answered"),
        ("reject.before", "reject", "rejected"),
        ("reject.after", "reject", "rejected"),
        ("notice.before_add", "queue", "answered"),
        ("notice.after_add", "queue", "answered"),
    ],
)
async def test_a_fault_at_any_point_of_a_mode_loses_and_doubles_nothing(
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    foreseen: Callable[[str], None],
    point: str,
    mode: str,
    state: str,
) -> None:
    foreseen("busy")
    broken: list[str] = []

    def reach(reached: str) -> None:
        if reached == point and not broken:
            broken.append(point)
            raise Injected(point)

    for module in ("inbox", "watch", "reject", "notice"):
        monkeypatch.setattr(f"workers.turn.busy.{module}.reach", reach)
    async with two_processes(make_settings(**in_mode(mode, heartbeat_seconds=0.05))) as two:
        here = {"platform": "local"}
        running = await two.running(**here)
        more = await two.say("two", **here)
        if mode == "queue":
            await until(lambda: broken)
        two.agent.wants_inbox = mode == "steer"
        if mode != "interrupt" and mode != "rollback":
            if mode == "reject":
                await two.ended(more)
            two.agent.let_go.set()
        states = await two.ended(running, more)
        await two.at_rest(key_of(platform="local"))
        assert states[1][0] == state and broken == [point]
        texts = await two.rig.transcript(key_of(platform="local"))
        assert texts.count("two") == (state != "rejected") and texts.count("hold 1") == 1


class Failing(Holding):
    """Fails, and takes its time to clean up."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client
        self.was_busy: list[bool] = []

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        self.was_busy.append(await self._client.hexists(keys.state("turns", key_of()), "token"))
        async for event in super().run(turn):
            yield event
        raise LookupError("as told")


async def test_Q1_Q14_a_key_is_busy_until_its_turn_has_ended_by_an_error_or_a_death_too(
    make_settings: MakeSettings,
) -> None:
    async with open_pipeline(make_settings(max_attempts=1)) as pipe:
        agent = Failing(pipe.servers.of_key(key_of()).client)
        rig = Rig(pipe, agent)
        said = [await rig.accept("one")]
        lease = await rig.lease()  # and its worker dies here
        pipe.turns.renewal.let_go(lease)
        await rig.expire_lease(pipe.turns, key_of())
        said.append(await rig.accept("two"))
        await pipe.turns.recover(key_of())
        await rig.run_turns()
        assert [state for state, _ in await Two(pipe, agent).ended(*said)] == ["dead", "dead"]
        assert agent.was_busy == [True, True] and await pipe.turns.awake([key_of()]) == [False]


class CleaningUp(Holding):
    """Takes its time to clean up when it is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.cleans, self.cleaned = asyncio.Event(), asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        try:
            async for event in super().run(turn):
                yield event
        finally:
            if turn.mail[0].text.startswith("hold"):
                self.at_once += 1
                self.cleans.set()
                await self.cleaned.wait()
                self.at_once -= 1


async def test_Q13_a_message_that_comes_while_a_turn_is_cleaned_up_is_answered_after_it(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.agents.reading.STOP_SECONDS", SECONDS)  # however slow the machine is
    agent = CleaningUp()
    async with two_processes(make_settings(**in_mode("interrupt")), agent) as two:
        said = [await two.running(), await two.say("two")]
        await agent.cleans.wait()
        said.append(await two.say("three"))
        agent.cleaned.set()
        states = await two.ended(*said)
        assert states == [("superseded", "interrupted"), ("answered", None), ("answered", None)]
        assert agent.begun == ["hold 1", "two", "three"] and agent.most_at_once == 1


async def test_ag30_a_worker_that_lost_its_key_merges_nothing_of_what_it_took(make_settings: MakeSettings) -> None:
    """It was paused for longer than its lease. Its successor answers the message that it had taken in."""
    async with open_pipeline(make_settings(**in_mode("steer"))) as pipe, open_pipeline(pipe.settings) as other:
        agent = Holding()
        paused, successor = Rig(pipe, agent), Rig(other)
        said = [await successor.accept("hold 1")]
        lease = await paused.lease()
        late = asyncio.create_task(paused.turns(lease))
        await until(lambda: agent.begun)
        said.append(await successor.accept("two"))
        pipe.turns.renewal.let_go(lease)
        agent.wants_inbox = 1
        agent.may_finish.clear()
        agent.let_go.set()
        async with asyncio.timeout(SECONDS):
            while agent.heard != ["two"]:
                lease.told()  # what is published has no worker here that would hear it
                await asyncio.sleep(0.01)
        await successor.expire_lease(other.turns, key_of())
        await other.turns.recover(key_of())
        await successor.run_turns()
        agent.may_finish.set()
        await late
        assert await Two(other, agent).ended(*said) == [("answered", None)] * 2
        assert await successor.transcript() == ["hold 1", "echo: hold 1", "two", "echo: two"]

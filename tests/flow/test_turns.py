"""The spine: one turn at a time per key, committed once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace

import pytest

from shared.agent.turn import Result, Turn
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Permanent, Superseded
from shared.lane import Claim
from shared.lane.lease import LeaseState
from shared.mail import TakeNotes, decode_inbound, encode_mail
from shared.pipeline import open_pipeline
from shared.reading.keys import first_mail
from shared.settings import Settings
from shared.store.change import Commit, Proof
from tests.support.pipe import Rig, an_inbound, control_key, key_of
from workers.agents.contract import Agent, Answers
from workers.agents.functions import FunctionAgent, OwnFunctionAgent
from workers.agents.resolve import resolve
from workers.agents.results import answered
from workers.turn.conclude import NOTICE
from workers.turn.open import Opened, open_mail


async def test_a_message_is_answered_and_its_key_leaves_nothing_in_redis(rig: Rig) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and row["state"] == "answered"
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


class Courteous:
    """An agent of a user's: it runs in a task of its own."""

    async def run(self, turn: Turn) -> Result:
        await asyncio.sleep(0)
        return answered(f"You said: {turn.mail[0].text}")


@pytest.mark.parametrize("agent", [resolve("echo"), Courteous()], ids=["ours", "a user's"])
async def test_a_turn_leaves_nothing_to_the_garbage_collector(rig: Rig, agent: Agent | Answers) -> None:
    rig.agent = agent
    await rig.accept("hello")
    await rig.run_turns()  # the first one also loads scripts and opens connections
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await rig.accept("again")
        await rig.run_turns()
        gc.collect()
        left = {
            type(found).__name__ for found in gc.garbage if type(found).__module__.startswith(("shared.", "workers."))
        }
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == set()


async def test_messages_of_a_key_are_answered_in_the_order_of_the_journal(rig: Rig) -> None:
    for n in range(5):
        await rig.accept(str(n))
    await rig.run_turns()
    assert await rig.transcript() == [t for n in range(5) for t in (str(n), f"echo: {n}")]


async def test_a_redelivered_message_is_accepted_again_and_runs_once(rig: Rig) -> None:
    first = await rig.accept("hello", event_id="e1")
    again = await rig.accept("hello", event_id="e1")
    assert (first.fresh, again.fresh, first.id == again.id) == (True, False, True)
    await rig.run_turns()
    late = await rig.accept("hello", event_id="e1")
    assert late.state == "answered"
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_worker_that_lost_its_lease_commits_nothing(rig: Rig) -> None:
    await rig.accept("hello")
    stale = await rig.lease()
    opened = await open_mail(stale.key, stale.mail[0], None, rig.pipe.store)
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    await rig.run_turns()  # another worker takes over and answers
    assert isinstance(opened, Opened)
    proof = Proof("turn_stale", "zombie", 1, 0, 0)
    with pytest.raises(Superseded):
        await rig.pipe.store.commit(Commit(opened.session, stale.key, proof, mail=(opened.mail,)))
    assert await rig.transcript() == ["hello", "echo: hello"]


async def test_a_failing_message_is_tried_again_then_set_aside_and_the_key_goes_on(rig: Rig) -> None:
    tries = []

    async def poison(text: str) -> str:
        tries.append(text)
        if text == "poison":
            raise RuntimeError("no")
        return "fine"

    rig.agent = FunctionAgent(poison)
    await rig.accept("poison")
    await rig.accept("next")
    for _ in range(rig.pipe.settings.max_attempts):
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
        await rig.run_turns()
    assert tries == ["poison"] * 3 + ["next"]
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert (dead["kind"], dead["reason"], dead["attempts"]) == ("inbound", "error", 3)
    assert await rig.transcript() == ["next", "fine"]
    parts = await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10)
    assert len(parts) == 2 and parts[0].text.startswith("Sorry") and parts[1].text == "fine"


@pytest.mark.parametrize(("later_ms", "ends"), [(0, "superseded"), (1, "answered")])
async def test_what_was_received_by_the_time_of_a_stop_is_dropped_and_what_came_after_it_is_answered(
    rig: Rig, later_ms: int, ends: str
) -> None:
    accepted = await rig.accept("hello")
    lease = await rig.lease()
    lease.drop_until(decode_inbound(lease.mail[0].payload).received_at - later_ms)
    await rig.turns(lease)
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and row["state"] == ends


@pytest.mark.parametrize(("by_operator", "before"), [(True, (1, 1)), (False, (0, 0))])
async def test_a_turn_that_is_cancelled_gives_its_key_back_and_counts_if_an_operator_asked_for_it(
    rig: Rig, by_operator: bool, before: tuple[int, int]
) -> None:
    runs = asyncio.Event()

    async def endless(text: str) -> str:
        runs.set()
        await asyncio.Event().wait()
        return text

    rig.agent = FunctionAgent(endless)
    await rig.accept("hello")
    lease = await rig.lease()
    lease.killed_by_operator = by_operator
    turn = asyncio.create_task(rig.turns(lease))
    await runs.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert lease.ended and not lease.lost
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    again = await rig.lease()
    assert again.attempts_before(again.mail[0].seq) == before


async def test_a_dead_letter_holds_the_beginning_of_a_long_error(make_settings: Callable[..., Settings]) -> None:
    async def poison(text: str) -> str:
        raise RuntimeError("x" * 2000)

    async with open_pipeline(make_settings(max_attempts=1)) as pipe:
        rig = Rig(pipe, FunctionAgent(poison))
        await rig.accept("poison")
        await rig.run_turns()
        [dead] = await pipe.store.dead.all(state="open", limit=10)
        assert dead["detail"] == f"RuntimeError: {'x' * 2000}"[:500]


async def test_mail_that_redis_lost_is_taken_from_the_journal_in_order(rig: Rig) -> None:
    for n in range(3):
        await rig.accept(str(n))
    for server in rig.pipe.servers.all:
        await server.client.flushall()
    await rig.accept("3")
    await rig.run_turns()
    assert await rig.transcript() == [t for n in range(4) for t in (str(n), f"echo: {n}")]


async def test_attempts_belong_to_the_message_and_not_to_its_key(rig: Rig) -> None:
    seen = []

    async def poison(text: str) -> str:
        seen.append(text)
        if text == "0":
            raise RuntimeError("no")
        return "fine"

    rig.agent = FunctionAgent(poison)
    await rig.accept("0")
    for server in rig.pipe.servers.all:
        await server.client.flushall()  # only the second message will be in the mailbox
    await rig.accept("1")
    for _ in range(2):
        await rig.run_turns()
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
    await rig.run_turns()
    assert seen == ["0"] * 3 + ["1"]
    [dead] = await rig.pipe.store.dead.all(state="open", limit=10)
    assert dead["attempts"] == 3
    row = await rig.pipe.store.sessions.find(key_of())
    assert row is not None
    assert await rig.transcript() == ["1", "fine"]


async def test_a_busy_conversation_hands_its_key_over_after_some_turns(make_settings: Callable[..., Settings]) -> None:
    async with open_pipeline(make_settings(turns_per_lease=3)) as pipe:
        rig = Rig(pipe)
        for n in range(7):
            await rig.accept(str(n))
        answered = []
        for _ in range(3):
            await rig.run_turns()  # each time with a fresh wake, at the end of the line of others
            answered.append(len(await rig.transcript()) // 2)
        assert answered == [3, 6, 7]


@pytest.mark.parametrize(("unseen", "ends"), [(11, "answered"), (12, "dead")])
async def test_a_message_whose_attempts_never_come_to_an_end_is_set_aside_after_four_times_max_attempts(
    rig: Rig, unseen: int, ends: str
) -> None:
    accepted, behind = await rig.accept("deadly"), await rig.accept("next")
    for _ in range(unseen):
        lease = await rig.lease()
        assert await lease.begin(lease.counts.seq)  # and its worker dies
        await rig.expire_lease(rig.pipe.turns, key_of())
        await rig.pipe.turns.recover(key_of())
    async with asyncio.timeout(90):  # a key that goes in circles ends here
        await rig.run_turns()
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and (row["state"], row["attempts"]) == (ends, 12)
    assert row["reason"] == ("crashed" if ends == "dead" else None)
    row = await rig.pipe.store.journal.find(behind.id)
    assert row is not None and row["state"] == "answered"
    assert ("echo: deadly" in await rig.transcript()) is (ends == "answered")


@pytest.mark.parametrize("notice", ["Please send less at once.", None])
async def test_the_chat_is_told_what_a_permanent_error_says_or_else_the_usual_words(
    rig: Rig, notice: str | None
) -> None:
    async def refuses(text: str) -> str:
        raise Permanent("too much", notice)

    rig.agent = FunctionAgent(refuses)
    await rig.accept("hello")
    await rig.run_turns()
    [part] = await rig.pipe.store.outbox.open_parts("to:webhook:c1", 10)
    assert part.text == (notice or NOTICE)


async def test_mail_that_comes_again_after_it_was_answered_is_dropped_under_the_same_lease(rig: Rig) -> None:
    """A receiver that was slow puts the first message into the mailbox while the second one runs."""
    first = await rig.accept("one")
    await rig.accept("two")
    row = await rig.pipe.store.journal.find(first.id)
    assert row is not None
    heard = []

    async def slow_receiver(text: str) -> str:
        heard.append(text)
        if text == "two":
            await rig.pipe.turns.put(key_of(), row["seq"], row["payload"].encode())
        return f"echo: {text}"

    rig.agent = FunctionAgent(slow_receiver)
    await rig.run_turns()
    assert heard == ["one", "two"]
    assert await rig.transcript() == ["one", "echo: one", "two", "echo: two"]
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


async def test_mail_taken_from_the_journal_is_put_back_so_that_the_next_holder_knows_its_attempts(rig: Rig) -> None:
    await rig.accept("0")
    for server in rig.pipe.servers.all:
        await server.client.flushall()
    await rig.accept("1")

    async def dies(text: str) -> str:
        raise asyncio.CancelledError

    rig.agent, lease = OwnFunctionAgent(dies), await rig.lease()
    assert lease.counts.seq == 2
    lease.state = LeaseState.LOST  # so nobody gives the key back, as nobody does for a worker that died
    with pytest.raises(asyncio.CancelledError):
        await rig.turns(lease)
    assert [waiting.seq for waiting in await first_mail(rig.pipe.turns, key_of(), 10)] == [1, 2]
    await rig.expire_lease(rig.pipe.turns, key_of())
    await rig.pipe.turns.recover(key_of())
    lease = await rig.lease()
    assert (lease.counts.seq, lease.attempts_before(1)) == (1, (1, 0))


@pytest.mark.parametrize("ends", ["answered", "dead", "superseded"])
async def test_all_photos_of_an_album_end_like_the_first_or_merged_into_its_answer(rig: Rig, ends: str) -> None:
    ids = []
    for n in range(3):
        photo = replace(an_inbound(f"photo {n}"), album="a1", received_at=now_ms() - 5000)
        ids.append((await accept(rig.pipe, photo)).id)

    async def looks(text: str) -> str:
        if ends == "dead":
            raise Permanent("no")
        return "fine"

    rig.agent = FunctionAgent(looks)
    if ends == "superseded":
        await rig.accept("/stop")
        claim, lease = await rig.start(rig.pipe.control, control_key(key_of()))
        assert claim is Claim.LEASED and lease is not None
        await rig.turns(lease)
    await rig.run_turns()
    rows = [await rig.pipe.store.journal.find(id) for id in ids]
    expected = [ends, "merged", "merged"] if ends == "answered" else [ends] * 3
    assert [row["state"] for row in rows if row is not None] == expected
    assert len(await rig.pipe.store.dead.all(state="open", limit=10)) == (3 if ends == "dead" else 0)


async def test_notes_to_take_between_two_photos_do_not_end_their_album(
    make_settings: Callable[..., Settings],
) -> None:
    async with open_pipeline(make_settings(durability="redis", log_level="error")) as pipe:
        rig = Rig(pipe)
        photos = [replace(an_inbound(f"photo {n}"), album="a1", received_at=now_ms() - 5000) for n in range(2)]
        await accept(pipe, photos[0])
        await pipe.turns.put(key_of(), 0, encode_mail(TakeNotes("ses_unknown")))
        await accept(pipe, photos[1])
        await rig.run_turns()
        assert await rig.transcript() == ["photo 0\nphoto 1", "echo: photo 0\nphoto 1"]
        assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []

"""The spine: one turn at a time per key, committed once."""

from __future__ import annotations

import pytest

from shared.errors import Superseded
from shared.store.change import Ending, Proof
from tests.support.pipe import Rig, key_of
from workers.agent import FunctionAgent
from workers.opening import open_mail


async def test_a_message_is_answered_and_its_key_leaves_nothing_in_redis(rig: Rig) -> None:
    accepted = await rig.accept("hello")
    await rig.run_turns()
    assert await rig.transcript() == ["hello", "echo: hello"]
    row = await rig.pipe.store.journal.find(accepted.id)
    assert row is not None and row["state"] == "answered"
    assert [name for name in await rig.residue() if name.startswith("kt:turns")] == []


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
    assert opened.mail is not None
    with pytest.raises(Superseded):
        await rig.pipe.store.commit(
            opened.session, stale.key, (opened.mail,), (), (), Ending(), Proof("turn_stale", "zombie", 1, 0, 0)
        )
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
    row = await rig.pipe.store.transcript.find(key_of())
    assert row is not None
    assert await rig.transcript() == ["1", "fine"]

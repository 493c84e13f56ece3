"""A message whose time in the journal is over is still known, at every moment, and says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from shared.clock import now_ms
from shared.codec import encode_text
from shared.errors import AlreadyDone
from shared.messages import Mail, Reply, State
from shared.store import Store, people
from shared.store.change import Ending
from shared.store.control import ControlCommit
from shared.store.database import Step
from shared.store.retention import HOUR_MS, OLDER_PROCESSES_MS, Retention
from tests.store.books import accept, ask, commit, contents, crowd, load, mail, raw, write
from tests.store.test_runs import PLAN, a_hold
from tests.store.test_tasks import a_task
from tests.support.pipe import control_key, key_of

LATER = now_ms() + 10**9  # everything of now is older than this
TABLE = "0031_known_messages"
REASON = "operator"


async def move(store: Store, limit: int = 2) -> int:
    """Steps until nothing more is old, as a housekeeper makes them."""
    moved = 0
    while count := await store.retention.journal(LATER, limit, turns_before=LATER):
        moved += count
    return moved


async def ended(store: Store, chats: Sequence[str], **how: Any) -> list[Mail]:
    """A message of each chat that was answered; nothing is left of its reply."""
    letters = [await mail(store, chat=chat) for chat in chats]
    for letter in letters:
        await commit(store, await load(store, key_of(letter.inbound.source.chat)), letter, replies=(), **how)
    return letters


async def ids(store: Store) -> list[str]:
    return [row["id"] for row in await ask(store, "SELECT id FROM inbox ORDER BY id")]


async def known(store: Store) -> int:
    return len(await ask(store, "SELECT digest FROM known_messages"))


@pytest.mark.parametrize(
    "ending", [Ending(), Ending(State.REJECTED, REASON), Ending(State.EXPIRED)], ids=["answered", "rejected", "expired"]
)
async def test_a_message_that_has_left_the_journal_is_known_and_says_how_it_ended(store: Store, ending: Ending) -> None:
    [letter] = await ended(store, ["c1"], ending=ending)
    before = await store.journal.find(letter.inbound.id)
    assert await move(store) == 1 and await ids(store) == []
    again = await accept(store, letter.inbound)
    assert (again.fresh, again.state, again.session_key) == (False, ending.state, key_of())
    assert [row["last_seq"] for row in await ask(store, "SELECT last_seq FROM routes")] == [1]
    after = await store.journal.find(letter.inbound.id)
    assert before is not None and after is not None
    emptied = {"event_id": "", "session_key": "", "payload": "", "seq": None, "turn_id": None}
    assert after == {**before, **emptied}
    assert not (await accept(store, letter.inbound)).fresh and await move(store) == 0


async def test_what_is_kept_of_a_message_names_nobody(store: Store) -> None:
    [letter] = await ended(store, ["c1"])
    await move(store)
    [row] = await ask(store, "SELECT * FROM known_messages")
    digest = row.pop("digest")
    assert (digest.bytes if isinstance(digest, UUID) else digest) == sha256(letter.inbound.id.encode()).digest()[:16]
    times = {"received_at": row["received_at"], "finished_at": row["finished_at"]}
    rest = {"attempts": 1, "platform": "webhook", "state": None, "session_key": None, "reason": None}
    assert row == {**times, **rest}


async def test_a_message_that_is_redelivered_all_the_time_is_known_at_every_moment(store: Store) -> None:
    letters = await ended(store, [f"c{n}" for n in range(30)])
    await crowd(store)
    over = asyncio.Event()

    async def redeliver(mine: Sequence[Mail]) -> int:
        taken = 0
        while not over.is_set():
            taken += sum([(await accept(store, letter.inbound)).fresh for letter in mine])
        return taken

    redelivering = [asyncio.create_task(redeliver(letters[n::3])) for n in range(3)]
    assert await move(store, limit=1) == 30
    over.set()
    assert await asyncio.gather(*redelivering) == [0, 0, 0]
    assert await ids(store) == [] and await known(store) == 30


async def test_a_step_that_fails_in_its_middle_leaves_the_journal_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [letter] = await ended(store, ["c1"])
    write, before = store.database.write, await contents(store)

    async def cut_short(*steps: Step, **how: Any) -> Any:
        return await write(*steps, raw("INSERT INTO migrations SELECT * FROM migrations"), **how)

    with monkeypatch.context() as failing:
        failing.setattr(store.database, "write", cut_short)
        with pytest.raises(AlreadyDone):
            await move(store)
    assert await contents(store) == before and await known(store) == 0
    assert not (await accept(store, letter.inbound)).fresh
    assert await move(store) == 1


async def test_after_a_kill_a_message_is_in_the_journal_or_in_the_table_and_never_in_both(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = await ended(store, ["c1", "c2", "c3"])
    write = store.database.write

    async def killed_after(*steps: Step, **how: Any) -> Any:
        await write(*steps, **how)
        raise KeyboardInterrupt

    for left in (2, 1, 0):
        with monkeypatch.context() as killing:
            killing.setattr(store.database, "write", killed_after)
            with pytest.raises(KeyboardInterrupt):
                await move(store, limit=1)
        assert (len(await ids(store)), await known(store)) == (left, 3 - left)
        assert [(await accept(store, letter.inbound)).fresh for letter in letters] == [False] * 3


async def test_two_housekeepers_move_each_message_once(store: Store) -> None:
    letters = await ended(store, [f"c{n}" for n in range(20)])
    await crowd(store)
    other = Retention(store.database)

    async def moving(retention: Retention) -> None:
        while await retention.journal(LATER, 3, turns_before=LATER):
            pass

    await asyncio.gather(moving(store.retention), moving(other))
    assert await ids(store) == [] and await known(store) == len(letters)


async def test_a_message_stays_in_the_journal_while_a_part_of_its_reply_is_there(store: Store) -> None:
    letter = await mail(store)
    await commit(store, await load(store), letter)
    assert await move(store) == 1 and await ids(store) == [letter.inbound.id]
    assert await move(store) == 0
    await write(store, "DELETE FROM outbox")
    assert await move(store) == 1 and await ids(store) == [] and await known(store) == 1


async def test_a_message_stays_in_the_journal_while_its_turn_is_kept(store: Store) -> None:
    [letter] = await ended(store, ["c1"])
    assert await store.retention.journal(LATER, 10) == 1 and await store.retention.journal(LATER, 10) == 0
    assert await ids(store) == [letter.inbound.id]
    assert await move(store) == 1 and await ids(store) == []


async def test_messages_behind_one_that_stays_are_moved(store: Store) -> None:
    stays = await mail(store)
    await commit(store, await load(store), stays)
    letters = await ended(store, ["c2", "c3", "c4"])
    assert await store.retention.journal(LATER, 10) == 4  # all have lost their words
    assert await move(store, limit=1) == len(letters)
    assert await ids(store) == [stays.inbound.id]


async def test_nothing_is_moved_while_processes_of_the_version_before_may_run(store: Store) -> None:
    [letter] = await ended(store, ["c1"])
    await write(store, f"UPDATE migrations SET applied_at = applied_at - {2 * HOUR_MS} WHERE name < '{TABLE}'")
    assert await move(store) == 1 and await known(store) == 0
    assert await ids(store) == [letter.inbound.id]
    await write(store, f"UPDATE migrations SET applied_at = applied_at - {OLDER_PROCESSES_MS} WHERE name = '{TABLE}'")
    assert await move(store) == 1 and await ids(store) == [] and await known(store) == 1


async def test_a_message_of_the_api_keeps_its_session_key_until_its_person_is_forgotten(store: Store) -> None:
    letters = await ended(store, ["c1", "c2"])
    await write(store, "UPDATE inbox SET platform = 'api'")
    await move(store)
    found = [await store.journal.find(letter.inbound.id) for letter in letters]
    assert [row and row["session_key"] for row in found] == [key_of("c1"), key_of("c2")]
    await store.database.write(people.sql.forget_known_messages(keys=encode_text([{"key": key_of("c1")}])))
    found = [await store.journal.find(letter.inbound.id) for letter in letters]
    assert [row and row["session_key"] for row in found] == ["", key_of("c2")]


async def test_mail_in_redis_whose_message_has_left_the_journal_is_not_run_again(store: Store) -> None:
    [letter] = await ended(store, ["c1"])
    await move(store)
    _, standing = await store.transcript.load(key_of(), letter.inbound.id)
    assert standing is not None and standing.state == State.ANSWERED
    again = Mail(10**15, letter.inbound, journaled=False)
    with pytest.raises(AlreadyDone):
        await store.commit_control(ControlCommit(control_key(key_of()), again, 1, (Reply("told"),)))
    assert await store.reject_waiting(key_of(), again, (Reply("told"),), REASON) is None
    assert await store.quota.reject(letter.inbound, key_of(), "too much") is None
    assert await ids(store) == [] and await ask(store, "SELECT id FROM outbox") == []


async def test_a_run_a_task_and_a_slot_whose_message_has_left_the_journal_know_how_it_ended(store: Store) -> None:
    [letter] = await ended(store, ["c1"], ending=Ending(State.REJECTED, REASON))
    id = letter.inbound.id
    assert await store.runs.add(await a_hold(store, letter), PLAN)
    assert await store.tasks.add(a_task(), 10)
    await write(store, "UPDATE tasks SET inbound_id = :id", id=id)
    await write(store, "INSERT INTO schedule_fires VALUES ('sch', 1, 0, 'fired', NULL, :id, 1)", id=id)
    await move(store)
    [unseen] = await store.tasks.unseen(LATER, 10)
    [slot] = await store.schedules.last_fires("sch", 10)
    assert (unseen.turn, unseen.reason) == (slot["turn"], slot["turn_reason"]) == (State.REJECTED, REASON)
    assert await store.runs.forget_left_over(LATER, 10) == 1

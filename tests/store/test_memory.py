"""Notes and the marks of what was looked at: both or neither, once, and only while the session stands still."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import Superseded
from shared.messages import Session
from shared.store import Store
from shared.store.change import Change, Commit
from shared.store.memory import Due, Quiet, forget_note
from tests.store.books import accept, commit, load, mail, proof, write
from tests.support.pipe import an_inbound, key_of


async def a_session(store: Store, chat: str = "c1") -> Session:
    letter = await mail(store, chat=chat)
    return (await commit(store, await load(store, key_of(chat)), letter)).session


async def ended(store: Store) -> Session:
    """A session that has ended, and is to be looked at."""
    session = await a_session(store)
    change = Change(next_session_id="ses_next", end_reason="session_reset")
    await store.commit(Commit(session, key_of(), proof(), change=change))
    return session


async def test_the_commit_that_ends_a_session_has_it_looked_at(store: Store) -> None:
    session = await ended(store)
    [due] = await store.memory.due(2**53, 10)
    assert (due.session_id, due.session_key) == (session.id, key_of())
    standing = await store.memory.standing(session.id)
    assert standing is not None and standing.ended_at is not None and standing.message_count == 2


async def test_notes_and_mark_are_one_and_a_second_try_of_the_same_adds_none(store: Store) -> None:
    session = await ended(store)
    standing = await store.memory.standing(session.id)
    assert standing is not None
    assert await store.memory.begin(session.id, "t1") == 1
    done = [store.memory.done(session.id, "t1", standing, "ann", ("a", "b", "a")) for _ in range(2)]
    assert sorted(await asyncio.gather(*done)) == [False, True]
    assert [note.text for note in await store.memory.of("ann", 10)] == ["a", "b"]
    assert await store.memory.standing(session.id) is None
    assert await store.memory.due(2**53, 10) == []


async def test_of_two_tries_the_one_that_began_last_counts(store: Store) -> None:
    session = await ended(store)
    standing = await store.memory.standing(session.id)
    assert standing is not None
    assert [await store.memory.begin(session.id, name) for name in ("t1", "t2", "t3", "t4")] == [1, 2, 3, None]
    assert not await store.memory.done(session.id, "t1", standing, "ann", ("a",))
    assert await store.memory.done(session.id, "t3", standing, "ann", ("c",))
    assert [note.text for note in await store.memory.of("ann", 10)] == ["c"]


async def test_a_session_that_moved_on_meanwhile_leaves_no_note(store: Store) -> None:
    session = await ended(store)
    standing = await store.memory.standing(session.id)
    assert standing is not None
    await store.memory.begin(session.id, "t1")
    await write(store, "UPDATE sessions SET version = version + 1 WHERE id = :id", id=session.id)
    assert not await store.memory.done(session.id, "t1", standing, "ann", ("a",))
    await store.memory.close(session.id, standing, "nothing", 2)
    assert await store.memory.of("ann", 10) == []
    assert await store.memory.standing(session.id) is not None


async def test_what_was_looked_at_is_not_queued_again_until_more_was_said(store: Store) -> None:
    session = await a_session(store)
    [quiet] = await store.memory.quiet((0, ""), 2**53, 10)
    await store.memory.queue([quiet])
    assert await store.memory.quiet((0, ""), 2**53, 10) == []
    standing = await store.memory.standing(session.id)
    assert standing is not None
    await store.memory.begin(session.id, "t1")
    assert await store.memory.done(session.id, "t1", standing, "ann", ())
    assert await store.memory.quiet((0, ""), 2**53, 10) == []
    inbound = an_inbound("more")
    letter = await mail(store)
    await commit(store, await load(store), letter)
    assert [found.id for found in await store.memory.quiet((0, ""), 2**53, 10)] == [session.id]
    assert (await accept(store, inbound)).fresh
    await store.memory.queue([quiet])
    again = await store.memory.standing(session.id)
    assert again is not None and (again.upto, again.tries) == (2, 0)
    assert len(await store.memory.rows(session.id, again.upto, 10)) == 2


async def test_pages_of_quiet_sessions_go_on_after_the_last_one_seen(store: Store) -> None:
    for n in range(5):
        await a_session(store, f"c{n}")
    await write(store, "UPDATE sessions SET updated_at = 7")
    seen: list[Quiet] = []
    while page := await store.memory.quiet((seen[-1].updated_at, seen[-1].id) if seen else (0, ""), 8, 2):
        seen += page
    assert len({quiet.id for quiet in seen}) == len(seen) == 5
    assert await store.memory.quiet((0, ""), 7, 10) == []


async def test_of_several_watchers_one_sends(store: Store) -> None:
    await ended(store)
    [due] = await store.memory.due(2**53, 10)
    outcomes = await asyncio.gather(*(store.memory.put_off(due, due.due_at + n) for n in range(1, 5)))
    assert outcomes.count(True) == 1
    assert not await store.memory.put_off(Due("ses_unknown", "k", 0), 1)


async def test_a_commit_that_loses_forgets_nothing(store: Store) -> None:
    session = await ended(store)
    standing = await store.memory.standing(session.id)
    assert standing is not None
    await store.memory.begin(session.id, "t1")
    await store.memory.done(session.id, "t1", standing, "ann", ("a", "b"))
    first = (await store.memory.of("ann", 10))[0]
    forget = Change(also=(forget_note("ann", first.id),))
    stale, fresh = session, await load(store)
    with pytest.raises(Superseded):
        await store.commit(Commit(stale, key_of(), proof(), change=forget))
    assert len(await store.memory.of("ann", 10)) == 2
    await store.commit(Commit(fresh, key_of(), proof(), change=forget))
    assert [note.text for note in await store.memory.of("ann", 10)] == ["b"]

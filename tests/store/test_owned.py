"""The conversations of an owner: which are listed, by what words, in which order."""

from __future__ import annotations

from shared.messages import Entry
from shared.store import Store
from shared.store.change import Change, Commit
from tests.store.books import load, proof, write
from tests.support.pipe import key_of

ME = "webhook:u=me"


async def conversation(store: Store, chat: str, *rows: Entry, title: str | None = None, owner: str = ME) -> str:
    session = await load(store, key_of(chat))
    await store.commit(Commit(session, key_of(chat), proof(), entries=rows, change=Change(title=title)))
    await write(store, "UPDATE sessions SET owner = :owner WHERE id = :id", owner=owner, id=session.id)
    return session.id


def user(text: str, **data: object) -> Entry:
    return Entry("user", text, data=data)


async def test_conversations_are_listed_by_the_first_words_of_their_user(store: Store) -> None:
    spoken = await conversation(
        store, "a", Entry("assistant", "ping"), user("/help", command=True), user("hi"), user("2")
    )
    await conversation(store, "b", Entry("assistant", "nobody answered"))
    await conversation(store, "c", user("/help", command=True), Entry("assistant", "that", data={"command": True}))
    undone = await conversation(store, "d", user("taken back"))
    await write(store, "UPDATE messages SET active = 0 WHERE session_id = :id", id=undone)
    named = await conversation(store, "e", Entry("assistant", "ping"), title="Trip")
    await conversation(store, "f", user("another's"), owner="webhook:u=other")
    again = await conversation(store, "g", user("taken back"), user("in other words"))
    await write(store, "UPDATE messages SET active = 0 WHERE session_id = :id AND n = 1", id=again)
    listed = {(row.id, row.title, row.preview) for row in await store.owned.newest(ME, limit=10)}
    assert listed == {(spoken, None, "hi"), (named, "Trip", None), (again, None, "in other words")}


async def test_the_one_that_is_left_out_and_those_without_a_title_are_not_listed_where_that_is_asked_for(
    store: Store,
) -> None:
    first = await conversation(store, "a", user("one"), title="One")
    second = await conversation(store, "b", user("two"), title="Two")
    await conversation(store, "c", user("three"))
    assert [row.id for row in await store.owned.newest(ME, limit=10, titled=True, but=first)] == [second]
    assert {row.id for row in await store.owned.newest(ME, limit=10, titled=True)} == {first, second}


async def test_conversations_are_listed_the_last_active_first_and_found_by_words_of_their_titles(store: Store) -> None:
    ids = [await conversation(store, f"c{n}", user("x"), title=f"Trip {n}%") for n in range(3)]
    for n, id in enumerate(ids):
        await write(store, "UPDATE sessions SET updated_at = :n WHERE id = :id", n=n, id=id)
    assert [row.id for row in await store.owned.newest(ME, limit=10)] == ids[::-1]
    assert [row.id for row in await store.owned.newest(ME, limit=2)] == ids[:0:-1]
    assert [row.id for row in await store.owned.newest(ME, limit=10, search="trip 1%")] == [ids[1]]
    assert await store.owned.newest(ME, limit=10, search="_") == []


async def test_an_id_finds_its_conversation_though_a_newer_one_has_it_as_its_title(store: Store) -> None:
    wanted = await conversation(store, "a", user("x"))
    newer = await conversation(store, "b", user("x"), title=wanted)
    await write(store, "UPDATE sessions SET created_at = created_at + 1000 WHERE id = :id", id=newer)
    found = await store.owned.find(ME, wanted)
    assert found is not None and found["id"] == wanted


async def test_a_title_is_taken_by_another_conversation_of_the_same_owner_only(store: Store) -> None:
    mine = await conversation(store, "a", user("x"), title="Trip")
    assert await store.owned.called(ME, "trip", "")
    assert not await store.owned.called(ME, "trip", mine)
    assert not await store.owned.called("webhook:u=other", "trip", "") and not await store.owned.called(ME, "tri", "")


async def test_what_a_user_said_is_counted_without_commands_answers_and_what_was_taken_back(store: Store) -> None:
    rows = [user("one"), Entry("assistant", "a"), user("/x", command=True), user("gone"), user("two"), user("three")]
    id = await conversation(store, "a", *rows)
    await write(store, "UPDATE messages SET active = 0 WHERE session_id = :id AND text = 'gone'", id=id)
    assert [await store.owned.spoken(id, skip) for skip in range(4)] == [(3, 1), (3, 5), (3, 6), (3, None)]

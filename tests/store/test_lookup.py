"""Finding sessions. Names begin with the row of the behaviour tables that a test holds."""

from __future__ import annotations

from shared.store import Store
from tests.store.books import commit, load, mail
from tests.support.pipe import key_of


async def test_E12_a_session_is_found_by_its_id_and_nothing_by_an_unknown_or_empty_one(store: Store) -> None:
    await commit(store, await load(store), await mail(store))
    session = await load(store)
    found = await store.sessions.find(session.id)
    assert found is not None and found["session_key"] == key_of()
    assert await store.sessions.find("ses_unknown") is None
    assert await store.sessions.find("") is None


async def test_E13_sessions_are_listed_newest_first_up_to_a_number(store: Store) -> None:
    """Our list is cut by number and not by age: it costs the same however many there are."""
    for chat in ("c1", "c2", "c3", "c1"):
        session = await load(store, key_of(chat))
        await commit(store, session, await mail(store, chat=chat))
    keys = [row["session_key"] for row in await store.sessions.listed(2)]
    times = [row["updated_at"] for row in await store.sessions.listed(10)]
    assert len(keys) == 2 and times == sorted(times, reverse=True) and len(times) == 3

"""The end of a transcript is read again only where another moved the session on; whoever does, it is what the database has."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from shared.messages import Entry, Session
from shared.store import Store, open_store
from shared.store.change import Change, Commit
from shared.store.windows import SESSION_BYTES, Windows
from shared.window import Window
from tests.store.books import commit, load, mail, proof, write
from tests.support.pipe import key_of

LIMIT = 4  # rows of a window, as in the fixture


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Store]:
    """Another process' store on the same database."""
    opened = await open_store(database_url, history_messages=LIMIT)
    yield opened
    await opened.database.close()


@pytest.fixture
def windows_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each session that `store` loads, whether the end of its transcript was read."""
    read, found = store.database.read, list[bool]()

    async def reading(*steps: Any) -> Any:
        answer = await read(*steps)
        found.extend(answer[0][0]["rows"] is not None for step in steps if step.statement.name == "load")
        return answer

    monkeypatch.setattr(store.database, "read", reading)
    return found


def texts(session: Session) -> list[str]:
    return [entry.text for entry in session.history]


async def test_what_our_own_turn_left_is_not_read_again(store: Store, windows_read: list[bool]) -> None:
    await commit(store, await load(store), await mail(store, "one"), replies=["1"])
    await commit(store, await load(store), await mail(store, "two"), replies=["2"])
    assert texts(await load(store)) == ["one", "1", "two", "2"]
    assert windows_read[1:] == [False, False]


async def test_what_another_process_added_is_seen(store: Store, other: Store, windows_read: list[bool]) -> None:
    await commit(store, await load(store), await mail(store, "one"), replies=["1"])
    await commit(other, await load(other), await mail(other, "two"), replies=["2"])
    assert texts(await load(store)) == ["one", "1", "two", "2"]
    assert windows_read[-1]


async def test_rows_that_left_the_conversation_are_gone(store: Store, other: Store) -> None:
    for undoing in (store, other):
        session = (await commit(store, await load(store), await mail(store, "one"), replies=["1"])).session
        change = Change(inactive_from=session.message_count - 1)
        await undoing.commit(Commit(session, key_of(), proof(), change=change))
        assert texts(await load(store)) == texts(await load(other)) == []


async def test_a_session_that_was_deleted_and_began_again_is_empty(store: Store, other: Store) -> None:
    for n in range(2):
        await commit(store, await load(store), await mail(store, f"private {n}"), replies=[f"{n}"])
    session = await load(other)
    assert await other.delete(session.id, session.version)
    assert texts(await load(store)) == []
    for n in range(2):  # it has the same id and comes to the same version
        await commit(other, await load(other), await mail(other, f"new {n}"), replies=[f"{n}"])
    again = await load(store)
    assert (again.id, again.version) == (session.id, session.version)
    assert texts(again) == ["new 0", "0", "new 1", "1"]


async def test_a_key_that_talks_to_another_session_gets_that_ones_words(store: Store) -> None:
    await commit(store, await load(store), await mail(store, "here"), replies=["1"])
    there = (await commit(store, await load(store, key_of("c2")), await mail(store, "there", chat="c2"))).session
    sql = "UPDATE routes SET session_id = :id WHERE session_key = :key RETURNING session_id"
    await write(store, sql, id=there.id, key=key_of())
    assert texts(await load(store)) == ["there", "hi"]


def entries(first: int, last: int) -> list[Entry]:
    return [Entry("user", str(n)) for n in range(first, last)]


@pytest.mark.parametrize("limit", [0, 1, 3, 10])
def test_a_window_that_is_added_to_for_long_holds_no_more_than_its_rows(limit: int) -> None:
    window = Window('[["user", "1", "{}", null], ["user", "0", "{}", null]]', limit)
    for n in range(2, 40, 2):
        window = window.and_then(entries(n, n + 2))
        assert list(window) == (entries(0, n + 2)[-limit:] if limit else [])
        assert len(window._since) <= max(limit, 0)


def test_only_so_much_is_kept_and_what_was_used_last_stays() -> None:
    small = Window(None, 9).and_then([Entry("user", "xyz")])
    windows = Windows(most_bytes=4 * (SESSION_BYTES + small.size))
    for n in range(20):
        windows.keep(f"k{n}", f"turn_{n}", small)
        windows.keep("often", f"often_{n}", small)
    assert [n for n in range(20) if windows.of(f"k{n}").turn_id] == [17, 18, 19]
    assert windows.of("often").turn_id == "often_19"
    windows.keep("huge", "turn", Window("x" * 10_000, 9))
    assert windows.of("huge").turn_id == ""
    for n in range(4):  # nothing is counted that is not there any more
        windows.keep(f"k{n}", "turn", small)
    assert [windows.of(f"k{n}").turn_id for n in range(4)] == ["turn"] * 4


def test_a_window_that_is_added_to_for_long_counts_what_it_holds() -> None:
    once = Window(None, 3).and_then(entries(10, 13))
    window = Window('[["user", "1", "{}", null]]', 3)
    for n in range(10, 40):
        window = window.and_then(entries(n, n + 1))
    assert window.size == once.size


SHORT: dict[str, Callable[[int], Window]] = {
    "said here": lambda n: Window(None, 50).and_then([Entry("user", f"hi {n}", f"in_{n:030}"), Entry("user", f"{n}")]),
    "as read": lambda n: Window(f'[["user","hello there {n}","{{}}","in_{n:030}"]]', 50),
    "cyrillic": lambda n: Window(None, 50).and_then([Entry("user", "привет" * 50 + str(n))]),
    "with data": lambda n: Window(None, 50).and_then(
        [
            Entry("user", f"h{n}", f"in_{n:030}", {"sender": f"name {n}"}),
            Entry("assistant", f"x{n}", None, {"usage": {"input": n + 1000, "output": n + 2000}}),
        ]
    ),
}


@pytest.mark.parametrize("kind", SHORT)
def test_windows_take_no_more_memory_than_they_may(kind: str) -> None:
    most = 2_000_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        windows = Windows(most)
        for n in range(10_000):
            windows.keep(f"agent:main:telegram:dm:{n}", f"turn_{n:032}", SHORT[kind](n))
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert most / 2 < used < most * 1.25

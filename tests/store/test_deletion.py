"""A conversation that is deleted leaves no word: not in a table, not in an index, not in the file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.clock import now_ms
from shared.mail import encode_mail
from shared.messages import Mail, Reply, State
from shared.store import Store
from shared.store.change import Ending
from shared.store.database import Row
from shared.store.database.sqlite import SqliteDatabase
from shared.store.memory import Quiet
from tests.store.books import ask, commit, load, mail, write
from tests.store.test_tasks import a_task
from tests.support.pipe import an_inbound, key_of

WORDS = "canaryzyxq 糖尿病"  # found by canary's three-letter pieces, and by 糖尿 and 尿病
PIECES = ("canary", "zyx", "yxq", "糖尿", "尿病")
OTHER = "parrot"


async def test_a_deleted_session_leaves_no_word_in_any_table_or_index_and_a_redelivery_is_still_known(
    store: Store,
) -> None:
    letter = await full_conversation(store)
    session = await load(store)
    assert all([await found_in(store, piece) for piece in PIECES])
    assert await store.delete(session.id, session.version)
    assert [await found_in(store, piece) for piece in PIECES] == [[]] * len(PIECES)
    tables = ("messages", "inbox", "outbox", "dead", "notes")
    assert set(tables) <= set(await found_in(store, OTHER))  # another's conversation, untouched
    assert (await found(store, OTHER)) == [key_of("c2")] and await found(store, "canary") == []
    assert not (await store.journal.accept(letter.inbound, b"{}", key_of(), 10)).fresh


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_after_a_vacuum_no_deleted_word_is_in_sqlites_file(store: Store) -> None:
    assert isinstance(store.database, SqliteDatabase)
    await full_conversation(store)
    session = await load(store)
    assert await store.delete(session.id, session.version)
    await store.database.vacuum()
    [row] = await ask(store, "SELECT file FROM pragma_database_list WHERE name = 'main'")
    stored = b"".join(path.read_bytes() for path in Path(row["file"]).parent.glob(f"{Path(row['file']).name}*"))
    assert [piece for piece in PIECES if piece.encode() in stored] == []
    assert OTHER.encode() in stored


async def test_a_session_that_is_indexed_while_it_is_deleted_leaves_nothing_in_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The indexer has read the texts, and writes what they are found by when the session is gone."""
    await commit(store, await load(store), await mail(store, WORDS))
    read, deleted = asyncio.Event(), asyncio.Event()
    write_steps = store.database.write

    async def late(*steps: Any, **how: Any) -> Any:
        read.set()
        await deleted.wait()
        return await write_steps(*steps, **how)

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "write", late)
        indexing = asyncio.create_task(store.search.index())
        await asyncio.wait_for(read.wait(), 60)
    session = await load(store)
    assert await store.delete(session.id, session.version)
    deleted.set()
    await asyncio.wait_for(indexing, 60)
    assert [await found_in(store, piece) for piece in PIECES] == [[]] * len(PIECES)


async def test_a_session_that_is_indexed_before_it_is_deleted_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(store, await load(store), await mail(store, WORDS))
    session = await load(store)
    write_steps = store.database.write

    async def indexed_first(*steps: Any, **how: Any) -> Any:
        monkeypatch.undo()
        await store.search.index()
        return await write_steps(*steps, **how)

    monkeypatch.setattr(store.database, "write", indexed_first)
    assert await store.delete(session.id, session.version)
    assert [await found_in(store, piece) for piece in PIECES] == [[]] * len(PIECES)


async def test_what_was_set_aside_of_a_keys_other_conversations_stays(store: Store) -> None:
    session = (await commit(store, await load(store), await mail(store, "old"))).session
    await refused(store, "during the old one")
    await commit(store, session, await mail(store, "/new"))
    await write(store, "UPDATE routes SET session_id = 'ses_new'")
    [last] = await ask(store, "SELECT MAX(committed_at) AS at FROM turns")
    while now_ms() <= last["at"]:
        await asyncio.sleep(0.001)
    await refused(store, "after it")
    assert await store.delete(session.id, session.version + 1)
    left = await ask(store, "SELECT payload FROM dead")
    assert ["after it" in row["payload"] for row in left] == [True]


async def test_words_are_found_by_the_conversations_own_key_when_its_turns_are_gone(store: Store) -> None:
    letter = await mail(store, WORDS)
    session = (await commit(store, await load(store), letter, replies=(WORDS, WORDS))).session
    _, buried = await store.outbox.open_parts("to:webhook:c1", 10)
    await store.outbox.bury(buried, "refused", WORDS)
    await write(store, "UPDATE dead SET state = 'dropped'")
    poison = await mail(store, WORDS)
    await commit(store, session, poison, replies=(), ending=Ending(State.DEAD, "error", WORDS))
    await refused(store, WORDS)
    await write(store, "DELETE FROM outbox WHERE state = 'buried'")
    await write(store, "DELETE FROM turns")
    assert await store.delete(session.id, session.version + 1)
    assert [await found_in(store, piece) for piece in PIECES] == [[]] * len(PIECES)


async def test_background_work_that_a_later_conversation_of_the_key_asked_for_goes_on(store: Store) -> None:
    session = (await commit(store, await load(store), await mail(store, "old"))).session
    asked = replace(a_task("old"), created_at=now_ms())
    further = replace(a_task("further"), parent_key=str(asked.key), depth=2, created_at=now_ms() + 90_000)
    session = (await commit(store, session, await mail(store, "/new"))).session
    await write(store, "UPDATE routes SET session_id = 'ses_new'")
    later = replace(a_task("new", asked_at=101), created_at=now_ms() + 60_000)
    for task in (asked, further, later):
        assert await store.tasks.add(task, 10)
    assert await store.delete(session.id, session.version)
    assert [task.name for task in await store.tasks.running(key_of(), 10)] == ["new"]


async def full_conversation(store: Store) -> Mail:
    """Said, answered, sent, still to be sent, buried, set aside, refused, noted, remembered, titled and indexed."""
    letter, poison, waiting = await mail(store, WORDS), await mail(store, WORDS), await mail(store, "more")
    session = (await commit(store, await load(store), letter, replies=(WORDS, WORDS))).session
    sent, unsent = await store.outbox.open_parts("to:webhook:c1", 10)
    await store.outbox.sending(sent, "lease")
    await store.outbox.sent(sent, "receipt")
    await store.outbox.bury(unsent, "refused", f"who says {WORDS}")
    ending = Ending(State.DEAD, "error", f"cannot read {WORDS}")
    session = (await commit(store, session, poison, replies=(), ending=ending)).session
    await commit(store, session, waiting, replies=(WORDS,))
    await refused(store, WORDS)
    blocked, dropped = await mail(store, "waits"), await mail(store, WORDS)
    assert await store.reject_waiting(key_of(), dropped, (Reply(WORDS),), "operator") is not None
    await commit(store, await load(store), blocked)
    await store.dead.set_aside("mail", "17", key_of(), "malformed", "not JSON", WORDS)
    await store.titles.suggest(session.id, WORDS)
    await write(store, "INSERT INTO facts VALUES (:id, 'goal', :words)", id=session.id, words=WORDS)
    await store.tasks.add(replace(a_task(), name=WORDS, text=WORDS), 10)
    other = await mail(store, OTHER, chat="c2")
    await commit(store, await load(store, key_of("c2")), other, replies=(OTHER,))
    await refused(store, OTHER, chat="c2")
    for chat, words in (("c1", WORDS), ("c2", OTHER)):
        await noted(store, key_of(chat), words)
    while await store.search.index():
        pass
    return letter


async def refused(store: Store, words: str, chat: str = "c1") -> None:
    inbound = an_inbound(words, chat=chat)
    payload = encode_mail(inbound).decode()
    await store.dead.set_aside("inbound", inbound.id, key_of(chat), "mailbox full", "too many", payload)


async def noted(store: Store, key: str, words: str) -> None:
    session = await load(store, key)
    await store.memory.queue([Quiet(session.id, key, session.updated_at)])
    assert await store.memory.begin(session.id, f"turn_{key}")
    standing = await store.memory.standing(session.id)
    assert standing is not None
    assert await store.memory.done(session.id, f"turn_{key}", standing, f"memory of {key}", [words])


async def found(store: Store, words: str) -> list[str]:
    answer = await store.search.find(words, None)
    assert answer is not None
    return [hit.session_key for hit in answer.hits]


async def found_in(store: Store, piece: str) -> list[str]:
    """The tables and indexes that hold a piece of text, whoever made them."""
    return [name for name, rows in (await everything(store)).items() if any(piece in str(row) for row in rows)]


async def everything(store: Store) -> dict[str, list[Row]]:
    """All rows of all tables there are and, of SQLite's search index, all that it lists and all that it stores."""
    if not isinstance(store.database, SqliteDatabase):
        tables = await ask(store, "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()")
        return {table["name"]: await ask(store, f'SELECT * FROM "{table["name"]}"') for table in tables}
    await write(store, "CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab ('search_grams', 'row')")
    tables = await ask(store, "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'search_grams'")
    rows = {table["name"]: await ask(store, f'SELECT * FROM "{table["name"]}"') for table in tables}
    for name in (
        "search_grams_data",
        "search_grams_idx",
    ):  # binary, with the text as it is, except where it is cut short
        rows[name] = [
            {column: v.decode(errors="replace") if isinstance(v, bytes) else v for column, v in row.items()}
            for row in rows[name]
        ]
    return rows

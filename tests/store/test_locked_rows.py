"""A row that another transaction keeps locked holds up its own conversation and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import orjson
import psycopg
import pytest

from shared.errors import Locked, Superseded
from shared.messages import Mail, Session
from shared.store import Store
from shared.store.database import Row, Step
from tests.store.books import commit, load, mail
from tests.support.pipe import key_of

CHATS = [f"c{n}" for n in range(30)]
STUCK = CHATS[0]
pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


@asynccontextmanager
async def _locked(url: str, sql: str) -> AsyncIterator[None]:
    """Keep the rows that a query finds locked, as a long deletion does."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(f"{sql} FOR UPDATE".encode())
        yield
        await connection.rollback()


async def _says(store: Store, session: Session, *letters: Mail) -> Session:
    """What a turn does: commit, and again while a lock is in the way."""
    turn_id = f"turn_{letters[0].inbound.id}"
    while True:
        try:
            return (await commit(store, session, *letters, turn_id=turn_id)).session
        except Locked:
            await asyncio.sleep(0.05)


async def _all_say(store: Store, sessions: dict[str, Session], text: str) -> dict[str, Session]:
    """Each says something, and all commit at once."""
    letters = [await mail(store, text, chat=chat) for chat in sessions]
    turns = map(partial(_says, store), sessions.values(), letters)
    return dict(zip(sessions, await asyncio.gather(*turns), strict=True))


async def _begun(store: Store, chats: list[str]) -> dict[str, Session]:
    return await _all_say(store, {chat: await load(store, key_of(chat)) for chat in chats}, "0")


@pytest.mark.parametrize("table", ["sessions", "routes"])
async def test_a_locked_row_holds_up_its_own_conversation_only(store: Store, database_url: str, table: str) -> None:
    others = await _begun(store, CHATS)
    stuck, letter = others.pop(STUCK), await mail(store, "1", chat=STUCK)
    async with asyncio.timeout(60):
        async with _locked(database_url, f"SELECT 1 FROM {table} WHERE session_key = '{key_of(STUCK)}'"):
            waiting = asyncio.create_task(_says(store, stuck, letter))
            for n in range(1, 5):
                others = await _all_say(store, others, str(n))
            assert not waiting.done()
        assert (await waiting).version == 2
    assert {session.version for session in others.values()} == {5}


async def test_a_commit_waits_for_a_drop_of_its_mail_that_is_not_committed_yet(store: Store, database_url: str) -> None:
    one, two = await mail(store, "one", chat=STUCK), await mail(store, "two", chat=STUCK)
    session, ended = (
        await load(store, key_of(STUCK)),
        f"UPDATE inbox SET state = 'rejected' WHERE id = '{two.inbound.id}'",
    )
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute(ended.encode())
        waiting = asyncio.create_task(_says(store, session, one, two))
        await _someone_waits_for_a_lock(database_url)
        await connection.commit()
    with pytest.raises(Superseded):
        await waiting
    assert (await commit(store, session, one)).session.version == 1


async def _someone_waits_for_a_lock(url: str) -> None:
    asked = b"SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(60):
        while await (await connection.execute(asked)).fetchone() == (0,):
            await asyncio.sleep(0.005)


async def test_a_commit_that_met_a_lock_is_written_alone_until_it_succeeds(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each of its tries would cost the others of its batch a wait."""
    chats = CHATS[:3]
    sessions, write, batches = await _begun(store, chats), store.database.write, list[int]()
    letters = {chat: [await mail(store, str(n), chat=chat) for n in range(4)] for chat in chats}

    async def counted(*steps: Step, **options: bool) -> list[list[Row]]:
        batches.append(len(orjson.loads(steps[0].values["turns"])))
        return await write(*steps, **options)

    async def tries(chat: str) -> bool:
        """Whether it met a lock."""
        try:
            sessions[chat] = (await commit(store, sessions[chat], letters[chat][0])).session
            letters[chat].pop(0)
        except Locked:
            return True
        return False

    monkeypatch.setattr(store.database, "write", counted)
    async with _locked(database_url, f"SELECT 1 FROM sessions WHERE session_key = '{key_of(STUCK)}'"):
        assert await asyncio.gather(*map(tries, chats)) == [True, False, False]
        assert sorted(batches) == [1, 1, 1, 3]
        batches.clear()
        assert await asyncio.gather(*map(tries, chats)) == [True, False, False]
        assert sorted(batches) == [1, 2]
    batches.clear()
    assert await asyncio.gather(*map(tries, chats)) == [False, False, False]
    assert await asyncio.gather(*map(tries, chats)) == [False, False, False]
    assert sorted(batches) == [1, 2, 3]

"""Many calls share one sync, and none of them pays for another's failure."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.errors import AlreadyDone, Unavailable
from shared.store import Store, open_store
from shared.store.database import Step
from shared.store.database.sqlite import SqliteDatabase, thread
from shared.store.database.statements import STATEMENTS
from tests.store.books import ask, commit, crowd, load, mail, raw
from tests.support.pipe import key_of
from tests.support.servers import Databases

ROOT = Path(__file__).parents[2]
WRITER = """
import asyncio, sys
from shared.store import open_store
from tests.store.books import commit, load, mail
from tests.support.pipe import key_of

async def main(url, name):
    store = await open_store(url, 10)
    print("ready", flush=True)
    sys.stdin.readline()
    async def talk(chat):
        session = await load(store, key_of(chat))
        for n in range(10):
            await mail(store, f"{name}-{n}", chat="all")
            session = (await commit(store, session, await mail(store, str(n), chat=chat))).session
    await asyncio.gather(*(talk(f"{name}-{n}") for n in range(5)))
    await store.database.close()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def letter(id: str, **changes: object) -> Step:
    values: dict[str, object] = {"kind": "request", "ref": id, "session_key": None, "reason": "r", "detail": "d"}
    values |= {"payload": "p", "attempts": 0, "now": 1, "once": None, **changes}
    return Step(STATEMENTS["set_aside"], values)


def turn(id: str) -> Step:
    return raw(
        "INSERT INTO turns VALUES (:id, 's', 'k', 1, 'answered', 1, 'w', 1, 1, 1)",
        id=id,
    )


async def test_a_call_that_fails_takes_nothing_of_the_others_with_it(store: Store) -> None:
    """Each bad call comes between good ones, in the same commit where the database has group commit."""
    await store.database.write(turn("taken"))
    await crowd(store)
    bad = {
        "unique": [letter("bad"), turn("taken")],
        "null": [letter("bad"), letter("bad", kind=None)],
        "no such table": [letter("bad"), raw("INSERT INTO nowhere VALUES (1)")],
        "not a value": [letter("bad"), letter("bad", detail=object())],
        "too large a number": [letter("bad"), letter("bad", now=2**70)],
    }
    calls = []
    for name, steps in bad.items():
        calls += [store.database.write(letter(f"before {name}"), turn(f"before {name}"))]
        calls += [store.database.write(*steps)]
        calls += [store.database.write(letter(f"after {name}"), turn(f"after {name}"))]
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    for n, name in enumerate(bad):
        before, failed, after = outcomes[3 * n : 3 * n + 3]
        assert not isinstance(before, BaseException) and not isinstance(after, BaseException), name
        assert isinstance(failed, Exception), name
    assert isinstance(outcomes[1], AlreadyDone)
    rows = await ask(store, "SELECT ref FROM dead")
    assert sorted(row["ref"] for row in rows) == sorted(
        f"{when} {name}" for when in ("before", "after") for name in bad
    )
    assert len(await ask(store, "SELECT id FROM turns")) == 1 + 2 * len(bad)


async def test_a_failed_call_alone_leaves_no_trace_and_the_next_one_works(store: Store) -> None:
    await store.database.write(turn("taken"))
    with pytest.raises(AlreadyDone):
        await store.database.write(letter("bad"), turn("taken"))
    assert await ask(store, "SELECT ref FROM dead") == []
    await store.database.write(letter("good"))
    assert [row["ref"] for row in await ask(store, "SELECT ref FROM dead")] == ["good"]


async def test_what_a_write_returned_for_is_read_by_everybody_at_once(store: Store, database_url: str) -> None:
    other = await open_store(database_url, 10)
    for n in range(20):
        written = await mail(store, str(n))
        assert await other.journal.find(written.inbound.id) is not None
    await other.database.close()


async def test_a_caller_that_went_away_harms_nobody(store: Store) -> None:
    calls = [asyncio.create_task(store.database.write(letter(str(n)))) for n in range(30)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await store.database.write(letter("last"))
    refs = {row["ref"] for row in await ask(store, "SELECT ref FROM dead")}
    assert {"last", *(str(n) for n in range(1, 30, 2))} <= refs


async def test_what_may_wait_for_company_does_not_wait_for_ever(store: Store) -> None:
    await store.database.write(letter("alone"), can_linger=True)
    await asyncio.gather(*(store.database.write(letter(str(n)), can_linger=True) for n in range(3)))
    assert len(await ask(store, "SELECT ref FROM dead")) == 4


@pytest.fixture
def sqlite_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def test_sqlite_is_safe_against_power_loss(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, 10)
    [journal], [synchronous] = [await ask(store, f"PRAGMA {name}") for name in ("journal_mode", "synchronous")]
    assert (journal["journal_mode"], synchronous["synchronous"]) == ("wal", 2)
    await store.database.close()


async def test_what_may_wait_shares_the_next_commit_of_what_may_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "LINGER_SECONDS", 60.0)
    store = await open_store(sqlite_url, 10)
    async with asyncio.timeout(30):
        await store.database.write(letter("first"))
        waiting = asyncio.create_task(store.database.write(letter("waiting"), can_linger=True))
        while isinstance(store.database, SqliteDatabase) and not store.database.writer.thread.calls.empty():
            await asyncio.sleep(0.01)  # until the writer has it, and lingers
        assert [row["ref"] for row in await ask(store, "SELECT ref FROM dead")] == ["first"]
        await store.database.write(letter("second"))
        await waiting
    assert len(await ask(store, "SELECT ref FROM dead")) == 3
    await store.database.close()


async def test_a_full_disk_fails_the_calls_and_ends_when_there_is_room_again(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, 10)
    [pages] = await ask(store, "PRAGMA page_count")
    await store.database.write(letter("before"))
    assert isinstance(store.database, SqliteDatabase)
    await store.database.write(raw(f"PRAGMA max_page_count = {pages['page_count'] + 2}"))
    outcomes = await asyncio.gather(
        *(store.database.write(letter(str(n), payload="x" * 50_000)) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    await store.database.write(letter("after"))  # the writer opened the file anew, without that limit
    assert [row["ref"] for row in await ask(store, "SELECT ref FROM dead ORDER BY id")] == ["before", "after"]
    await store.database.close()


async def test_two_processes_write_one_sqlite_file_at_once(sqlite_url: str) -> None:
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, sqlite_url, name, cwd=ROOT, **pipes)
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None and await writer.stdout.readline() == b"ready\n"
    async with asyncio.timeout(120):
        await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers))
    assert [writer.returncode for writer in writers] == [0, 0]
    store = await open_store(sqlite_url, 10)
    shared = await store.journal.pending(key_of("all"), after=0, limit=1000)
    assert [row.seq for row in shared] == list(range(1, 101))
    for name in ("one", "two"):
        for n in range(5):
            session = await load(store, key_of(f"{name}-{n}"))
            assert (session.version, session.done_seq, session.message_count) == (10, 10, 20)
    await commit(store, await load(store), await mail(store))
    await store.database.close()

"""Only errors that pass by themselves are an outage. Any other error belongs to the message whose statement met it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from shared.errors import AlreadyDone, PipelineError, Unavailable
from shared.store import Store, open_store
from shared.store.database.postgres.errors import passes, reconnects
from shared.store.database.sqlite import writer
from tests.store.books import ask, commit, load, mail, raw, write
from tests.support.servers import Databases

ME = "webhook:u=u1"
LETTERS = [chr(code) for code in range(0x61, 0x500) if chr(code).islower()]
WORD = "".join(random.Random(1).choices(LETTERS, k=120_000))
# A row whose text is "poison" cannot be kept: SQLite finds a pattern too complex, PostgreSQL a statement.
REFUSING_SQLITE = (
    "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.text = 'poison' "
    "BEGIN SELECT 'x' LIKE hex(zeroblob(60000)); END",
)
REFUSING_POSTGRES = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'too complex' USING ERRCODE = '54001'; END $$",
    "CREATE TRIGGER refuse BEFORE INSERT ON messages FOR EACH ROW WHEN (NEW.text = 'poison') EXECUTE FUNCTION refuse()",
)


async def refuse_poison(store: Store) -> None:
    """From here on, no commit with a row `poison` can ever succeed."""
    for statement in REFUSING_POSTGRES if store.database.dialect == "postgres" else REFUSING_SQLITE:
        await write(store, statement)


async def run_out_of_time(store: Store, before: str, times: int) -> None:
    """PostgreSQL ends the next statements of one kind, like `INSERT ON inbox`, as it does with one that runs for too long."""
    for statement in (
        "CREATE SEQUENCE ended",
        f"CREATE FUNCTION end_statement() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('ended') <= {times} THEN "
        "RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER end_statement BEFORE {before} FOR EACH ROW EXECUTE FUNCTION end_statement()",
    ):
        await write(store, statement)


QUESTIONS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "search": lambda store: store.search.find(WORD, ME),
    "titles": lambda store: store.owned.newest(ME, limit=10, search=WORD),
    "depth": lambda store: ask(store, f"SELECT {'NOT ' * 100_000} true AS t"),
}


async def test_a_question_that_the_database_can_never_answer_is_no_outage(store: Store) -> None:
    committed = await commit(store, await load(store), await mail(store))
    await store.titles.suggest(committed.session.id, "a title")
    answers = await asyncio.gather(*(asked(store) for asked in QUESTIONS.values()), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert refused, "no question was too much for this database"
    assert not [error for error in refused if isinstance(error, PipelineError)]


async def test_a_statement_that_can_never_run_is_no_outage(store: Store) -> None:
    await refuse_poison(store)
    row = "INSERT INTO messages (session_id, n, turn_id, role, text, data, created_at) VALUES ('s', 1, 't', 'user', :text, '{}', 1)"
    with pytest.raises(Exception) as refused:
        await write(store, row, text="poison")
    assert not isinstance(refused.value, PipelineError)
    await write(store, row, text="fine")


async def test_a_row_without_a_value_that_it_needs_was_not_committed_before(store: Store) -> None:
    with pytest.raises(Exception) as refused:
        await write(store, "INSERT INTO facts (scope, name, value) VALUES ('s', 'n', NULL)")
    assert not isinstance(refused.value, PipelineError)
    await write(store, "INSERT INTO migrations VALUES ('mine', 1)")
    with pytest.raises(AlreadyDone):
        await write(store, "INSERT INTO migrations VALUES ('mine', 1)")


async def test_the_error_of_a_statement_is_known_whatever_stands_behind_it_in_its_list(store: Store) -> None:
    later = [raw("INSERT INTO migrations VALUES (:name, 1)", name=f"{n}") for n in range(50)]
    twice = raw("INSERT INTO migrations VALUES ('0001_spine', 1)")
    with pytest.raises(AlreadyDone):
        await store.database.write(twice, *later)
    with pytest.raises(AlreadyDone):
        await store.database.write(*later, twice)
    assert await ask(store, "SELECT name FROM migrations WHERE name = '7'") == []


@pytest.mark.parametrize(
    ("code", "passing"),
    [
        ("08006", True),  # connection failure
        ("25006", True),  # read-only transaction
        ("25P03", True),  # idle in transaction for too long
        ("53100", True),  # disk full
        ("53300", True),  # too many connections
        ("55P03", True),  # lock not available
        ("57P01", True),  # shutting down
        ("57P03", True),  # starting up
        ("58030", True),  # input/output error
        ("22001", False),  # value too long
        ("23502", False),  # not null
        ("42601", False),  # syntax
        ("54000", False),  # program limit
        ("54001", False),  # statement too complex
    ],
)
@pytest.mark.parametrize("writing", [True, False])
def test_what_passes_on_postgres_is_an_allow_list(code: str, passing: bool, writing: bool) -> None:
    assert passes(psycopg.errors.lookup(code)(""), writing=writing) is passing


def test_a_statement_that_ran_for_too_long_is_an_outage_where_it_writes_and_nowhere_else() -> None:
    too_long = psycopg.errors.lookup("57014")("")
    assert (passes(too_long, writing=True), passes(too_long, writing=False)) == (True, False)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_statement_that_ran_for_too_long_is_an_outage_where_it_writes_and_no_outage_where_it_reads(
    store: Store,
) -> None:
    await run_out_of_time(store, "INSERT ON facts", times=1)
    row = "INSERT INTO facts (scope, name, value) VALUES ('s', 'n', 'v')"
    with pytest.raises(Unavailable):
        await write(store, row)
    await write(store, row)
    await write(
        store,
        "CREATE FUNCTION slow() RETURNS int LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$",
    )
    with pytest.raises(psycopg.errors.QueryCanceled):
        await ask(store, "SELECT slow()")


def test_a_lost_connection_passes_and_an_aborted_pipeline_does_not() -> None:
    assert passes(psycopg.OperationalError("server closed the connection unexpectedly"), writing=False)
    assert passes(TimeoutError(), writing=False)
    assert not passes(psycopg.errors.PipelineAborted("pipeline aborted"), writing=True)
    assert not passes(ValueError(), writing=True)
    assert reconnects(psycopg.errors.lookup("25006")(""))


@pytest.fixture
def sqlite_url(databases: Databases, tmp_path: Path) -> str:
    return databases.fresh_sqlite(tmp_path)


async def test_sqlites_writer_survives_an_error_that_python_raises_itself(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, 10)
    async with asyncio.timeout(60):
        with pytest.raises(Exception) as refused:
            await write(store, "INSERT INTO migrations VALUES (CAST(X'FF' AS TEXT), 1) RETURNING name")
        assert not isinstance(refused.value, PipelineError)
        await write(store, "INSERT INTO migrations VALUES ('next', 1)")
    assert await ask(store, "SELECT name FROM migrations WHERE name = CAST(X'FF' AS TEXT)") == []
    await store.database.close()


@pytest.mark.parametrize("error", [RuntimeError("unexpected"), MemoryError()])
async def test_sqlites_writer_survives_any_error_and_reports_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = await open_store(sqlite_url, 10)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken, capture_logs() as lines:
        broken.setattr(writer, "begin", fail)
        with pytest.raises(Unavailable):
            async with asyncio.timeout(60):
                await write(store, "INSERT INTO migrations VALUES ('lost', 1)")
    assert [(line["log_level"], line["thread"]) for line in lines] == [("error", "sqlite-writer")]
    async with asyncio.timeout(60):
        await write(store, "INSERT INTO migrations VALUES ('next', 1)")
    names = await ask(store, "SELECT name FROM migrations WHERE name IN ('lost', 'next')")
    assert [row["name"] for row in names] == ["next"]
    await store.database.close()

"""Which errors of SQLite pass by themselves, and what a caller gets for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import AlreadyDone, Unavailable
from shared.store.database.sqlite.connection import connect
from shared.store.database.sqlite.errors import passes, translated
from shared.store.database.sqlite.migrating import migrate, pending

FULL = 2


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "a.db")
    migrate(connection)
    yield connection
    connection.close()


def an_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = code
    return error


def test_commits_are_on_disk_when_they_return_whatever_sqlite_was_built_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = sqlite3.connect

    def less_safe(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connecting(*arguments, **options)
        made.execute("PRAGMA synchronous = OFF")
        return made

    monkeypatch.setattr(sqlite3, "connect", less_safe)
    connection = connect(tmp_path / "b.db")
    try:
        assert connection.execute("PRAGMA synchronous").fetchone() == {"synchronous": FULL}
        assert connection.execute("PRAGMA journal_mode").fetchone() == {"journal_mode": "wal"}
    finally:
        connection.close()


@pytest.mark.parametrize(
    "code", ["BUSY", "LOCKED", "NOMEM", "READONLY", "IOERR", "FULL", "CANTOPEN", "PROTOCOL", "NOTADB"]
)
@pytest.mark.parametrize("extended", [0, 3])
def test_what_passes_by_itself_is_an_outage(connection: sqlite3.Connection, code: str, extended: int) -> None:
    error = an_error(getattr(sqlite3, f"SQLITE_{code}") | extended << 8)
    assert passes(error)
    found = translated(error, connection)
    assert isinstance(found, Unavailable) and str(found) == "SQLite: why"


def test_memory_that_python_does_not_get_is_an_outage_too(connection: sqlite3.Connection) -> None:
    assert isinstance(translated(MemoryError(), connection), Unavailable)


@pytest.mark.parametrize("code", ["CONSTRAINT_UNIQUE", "CONSTRAINT_PRIMARYKEY", "CONSTRAINT_ROWID"])
def test_a_row_that_is_there_already_says_so(connection: sqlite3.Connection, code: str) -> None:
    assert isinstance(translated(an_error(getattr(sqlite3, f"SQLITE_{code}")), connection), AlreadyDone)


@pytest.mark.parametrize("code", ["ERROR", "MISMATCH", "CONSTRAINT_NOTNULL", "TOOBIG", "RANGE"])
def test_what_would_come_again_belongs_to_its_message(connection: sqlite3.Connection, code: str) -> None:
    error = an_error(getattr(sqlite3, f"SQLITE_{code}"))
    assert translated(error, connection) is error and not passes(error)
    assert translated(ValueError("ours"), connection).args == ("ours",)


def test_a_missing_table_is_an_outage_until_the_schema_is_up_to_date(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    behind = connect(tmp_path / "behind.db")
    found = translated(an_error(sqlite3.SQLITE_ERROR), behind)
    assert isinstance(found, Unavailable) and "keyturn migrate" in str(found)
    assert pending(behind) == pending(None) and pending(behind)
    assert migrate(behind) == pending(None) and migrate(behind) == [] == pending(behind)
    behind.close()

"""Which errors of SQLite are an outage: they pass by themselves, or when somebody gives the file room and rights.

Any other error would come again with the same statement. It belongs to the message that the statement was for.
"""

from __future__ import annotations

import sqlite3

from shared.errors import AlreadyDone, Unavailable
from shared.store.database.sqlite.migrating import pending

_PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
)
_EXISTS = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)


def passes(error: Exception) -> bool:
    """Whether it is an outage. Python raises MemoryError for SQLITE_NOMEM."""
    code = _code(error)
    return isinstance(error, MemoryError) or (code is not None and code & 0xFF in _PASSING)


def translated(error: Exception, connection: sqlite3.Connection) -> Exception:
    """The error that the caller gets: AlreadyDone, Unavailable, or the error itself where it is no outage."""
    if _code(error) in _EXISTS:
        return AlreadyDone(str(error))
    if passes(error):
        return Unavailable(f"SQLite: {error}")
    # SQLite has no code of its own for a missing table or column.
    if _code(error) == sqlite3.SQLITE_ERROR and pending(connection):
        return Unavailable("SQLite: the schema is not up to date; run `keyturn migrate`")
    return error


def _code(error: Exception) -> int | None:
    """SQLite's own code. Errors that Python raises have none, not even those of its sqlite3 module."""
    return getattr(error, "sqlite_errorcode", None)

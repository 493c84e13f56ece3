"""Which errors of PostgreSQL are an outage: they pass by themselves, so callers wait and spend no attempt.

Any other error would come again with the same statement. It belongs to the message that the statement was for. A statement
that ran for too long is an outage where it writes: what our writes touch is bounded, so the server was slow. A question may
be too much for any server.
"""

from __future__ import annotations

import psycopg

from shared.errors import AlreadyDone, Locked, Unavailable
from shared.store.database.postgres.reachable import NoConnection

_CONNECTION = (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError)
_CLASSES = (
    "08",  # the connection failed; poolers report a server that is away like this too
    "53",  # out of disk, memory or connections
    "57P",  # shutting down, starting up, or ended by an administrator
)
TOO_LONG = "57014"  # ended by the statement timeout, or by an administrator
READ_ONLY = "25006"  # a standby, or a server whose disk is nearly full
SCHEMA = ("42P01", "42703")  # a table or a column is missing: this version's migrations were not applied yet
_CODES = (
    READ_ONLY,
    "25P03",  # idle in a transaction for too long: this process was stopped meanwhile
    "55P03",  # another transaction keeps a row or a table locked
    "58030",  # input/output error
    *SCHEMA,
)


def real_error(error: BaseException) -> BaseException:
    """The error that aborted a pipeline. psycopg may raise the abortion of the later statements instead."""
    while isinstance(error, psycopg.errors.PipelineAborted) and error.__context__ is not None:
        error = error.__context__
    return error


def passes(error: BaseException, *, writing: bool) -> bool:
    """Whether it is an outage, for a call that writes or for one that reads."""
    code = getattr(error, "sqlstate", None)
    if code is None:  # the client's own: the connection is lost, or none could be had
        return isinstance(error, _CONNECTION) and not isinstance(error, psycopg.errors.PipelineAborted)
    return code in _CODES or code.startswith(_CLASSES) or (writing and code == TOO_LONG)


def reconnects(error: BaseException) -> bool:
    """Whether new connections may work where the present ones do not: they may still lead to a demoted server."""
    return getattr(error, "sqlstate", None) == READ_ONLY


def translated(error: BaseException, *, writing: bool) -> BaseException:
    """The error that callers get: AlreadyDone, Locked, Unavailable, or the error itself where it is no outage."""
    if isinstance(error, psycopg.errors.UniqueViolation):
        return AlreadyDone(str(error))
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return Locked("PostgreSQL: a row is locked")
    if getattr(error, "sqlstate", None) in SCHEMA:
        return Unavailable("PostgreSQL: the schema is not up to date; run `keyturn migrate`")
    said = str(error) if isinstance(error, NoConnection) else type(error).__name__
    return Unavailable(f"PostgreSQL: {said}") if passes(error, writing=writing) else error

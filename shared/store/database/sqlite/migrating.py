"""Migrations of a SQLite file, all in one transaction: after a crash none of them is there."""

from __future__ import annotations

import sqlite3

from shared.clock import now_ms
from shared.store.database.migrations import LEDGER, migrations
from shared.store.database.sqlite.connection import begin


def migrate(connection: sqlite3.Connection) -> list[str]:
    """Apply what is missing and name it. Of several processes that do so, one writes and the others find it done."""
    done = []
    begin(connection)
    connection.execute(LEDGER)
    applied = _applied(connection)
    for migration in migrations("sqlite"):
        if migration.name in applied:
            continue
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO migrations VALUES (?, ?)", (migration.name, now_ms()))
        done.append(migration.name)
    connection.execute("COMMIT")
    return done


def pending(connection: sqlite3.Connection | None) -> list[str]:
    """What `migrate` would apply. Without a connection: there is no file yet."""
    applied = _applied(connection) if connection is not None else set()
    return [migration.name for migration in migrations("sqlite") if migration.name not in applied]


def _applied(connection: sqlite3.Connection) -> set[str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchall():
        return set()
    return {row["name"] for row in connection.execute("SELECT name FROM migrations")}

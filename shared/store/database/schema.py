"""Whether a database has the tables that this version needs."""

from __future__ import annotations

from shared.errors import ConfigurationError, Unavailable
from shared.store.database import Database


async def require_schema(database: Database) -> None:
    """A ConfigurationError where migrations are missing. A database that is away passes: calls say so until it is back."""
    try:
        missing = await database.pending_migrations()
    except Unavailable:
        return
    if missing:
        lacking = missing[0] if len(missing) == 1 else f"{len(missing)} migrations, {missing[0]} to {missing[-1]}"
        raise ConfigurationError(f"the database{database.place} lacks {lacking}: run `keyturn migrate`")

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
        raise ConfigurationError(f"the database lacks {', '.join(missing)}: run `keyturn migrate`")

"""Sessions: delete one with all that was said in it."""

from __future__ import annotations

from shared.errors import CannotDo
from shared.reading.sessions import StoredSession
from shared.store import Store
from shared.store.database.sqlite import SqliteDatabase
from shared.value import value


@value
class DeletedSession:
    """A session that is gone for good, and how many messages went with it."""

    id: str
    messages: int
    state: str = "deleted"


async def delete_session(store: Store, session: StoredSession) -> DeletedSession:
    """Delete the session with all that was said in it, unless it has gone on since it was looked at (CannotDo).

    Its key begins an empty one with its next message. One transaction: after a crash it is gone whole, or there whole.
    """
    if not await store.delete(session.id, session.version):
        raise CannotDo(f"{session.id} has gone on meanwhile: nothing was deleted; look at it again")
    return DeletedSession(session.id, session.message_count)


async def check_vacuum(store: Store) -> None:
    """CannotDo unless the database's file can be written anew from here, as SQLite's can."""
    _sqlite(store)


async def vacuum(store: Store) -> None:
    """Write SQLite's file anew, so that its unused space holds no deleted word; CannotDo for another database."""
    await _sqlite(store).vacuum()


def _sqlite(store: Store) -> SqliteDatabase:
    if not isinstance(store.database, SqliteDatabase):
        raise CannotDo("--vacuum is for SQLite: ask PostgreSQL for VACUUM FULL yourself, where its files matter")
    return store.database

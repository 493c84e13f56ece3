"""Hands for the store: accept and commit in a line, and count what every table holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from shared.mail import encode_mail
from shared.messages import Entry, Inbound, Mail, Reply, Session
from shared.store import Store
from shared.store.change import ANSWERED, Commit, Committed, Ending, Proof
from shared.store.database import CONNECTIONS, Row, Step
from shared.store.database.postgres import PostgresDatabase
from shared.store.database.statements import Statement
from shared.store.journal import Accepted
from tests.support.pipe import an_inbound, key_of

TABLES = ("inbox", "routes", "sessions", "messages", "turns", "outbox", "dead")


async def accept(store: Store, inbound: Inbound, *, limit: int = 1000, key: str | None = None) -> Accepted:
    key = key if key is not None else key_of(inbound.source.chat)
    return await store.journal.accept(inbound, encode_mail(inbound), key, limit)


async def mail(store: Store, text: str = "hello", *, chat: str = "c1", **about: Any) -> Mail:
    """An inbound that the journal has."""
    inbound = an_inbound(text, chat=chat, **about)
    return Mail((await accept(store, inbound)).seq, inbound)


def proof(turn_id: str | None = None, attempts: int = 1) -> Proof:
    return Proof(turn_id or f"turn_{uuid4().hex}", "test", attempts, 1, 2)


async def load(store: Store, key: str = key_of()) -> Session:
    session, _ = await store.transcript.load(key, "")
    return session


async def commit(
    store: Store,
    session: Session,
    *letters: Mail,
    replies: Sequence[str] = ("hi",),
    ending: Ending = ANSWERED,
    turn_id: str | None = None,
) -> Committed:
    """What a turn that answered `letters` leaves."""
    entries = [Entry("user", m.inbound.text, m.inbound.id) for m in letters]
    entries += [Entry("assistant", text) for text in replies]
    parts = [Reply(text) for text in replies]
    key = key_of(letters[-1].inbound.source.chat)
    return await store.commit(Commit(session, key, proof(turn_id), letters, entries, parts, ending))


def raw(sql: str, **values: Any) -> Step:
    """A step that is in no file, written with :names."""
    return Step(Statement("test", sql, sql, None), values)


async def crowd(store: Store) -> None:
    """Let PostgreSQL's pool grow to its size, so that what is sent at once runs at once. SQLite has one writer."""
    if isinstance(store.database, PostgresDatabase):
        await asyncio.gather(*(ask(store, "SELECT pg_sleep(0.3)") for _ in range(CONNECTIONS)))


async def ask(store: Store, sql: str, **values: Any) -> list[Row]:
    """Any query."""
    [rows] = await store.database.read(raw(sql, **values))
    return rows


async def write(store: Store, sql: str, **values: Any) -> list[Row]:
    [rows] = await store.database.write(raw(sql, **values))
    return rows


async def contents(store: Store) -> dict[str, list[Row]]:
    """Everything in every table."""
    return {table: await ask(store, f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}


async def indexed_rows(store: Store) -> list[Row]:
    """The rows that search finds by its index, in order; one that the index has twice comes twice."""
    if isinstance(store.database, PostgresDatabase):
        return await ask(
            store,
            """SELECT messages.session_id, messages.n FROM search_spans
               JOIN messages ON messages.session_id = search_spans.session_id AND n BETWEEN since_n AND last_n
               ORDER BY messages.session_id, messages.n""",
        )
    return await ask(store, "SELECT session_id, n FROM search_rows ORDER BY session_id, n")

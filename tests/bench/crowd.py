"""A deployment with very many sessions, searchable ones, and many keys that wait for a worker.

Sessions are written by SQL and indexed by the housekeeper's own hand; waiting keys come through the door, as messages do.
"""

from __future__ import annotations

from shared.clock import now_ms
from shared.store import Store, open_store
from shared.store.database.statements import Statement, Step
from shared.store.usage import day_of
from tests.bench.cases.loading import SERIES, WINDOW
from tests.bench.past import TEXT

FILL = (
    "INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)"
    " SELECT 'agent:main:webhook:dm:c' || k.x, 'ses_' || k.x, 0, 0, 1 FROM {keys}",
    "INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, owner, title)"
    " SELECT 'ses_' || k.x, 'agent:main:webhook:dm:c' || k.x, 1, 'past', 1, 1, k.x, 'webhook:u=' || k.x, 'Talk ' || k.x"
    " FROM {keys}",
    "INSERT INTO messages (session_id, n, turn_id, role, text, data, created_at)"
    " SELECT 'ses_' || k.x, 1, 'past', 'user', '{text} Number ' || k.x, '{{}}', 1 FROM {keys}",
    "INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total, cost_nano,"
    " priced, updated_at)"
    " SELECT 'ses_' || k.x, 'webhook:u=' || k.x, 'main', 'm', '{today}', 1, 1, 1, 0, 0, 2, 1, 1, 1 FROM {keys}"
    " WHERE k.x % 10 = 0",  # a tenth has asked a model today
)
ANALYZE = "ANALYZE"  # as PostgreSQL does by itself after a while; SQLite does not, and nobody asks it to


async def fill_sessions(url: str, kind: str, sessions: int) -> None:
    """Keys 0, 1, 2 … with a session each, of one message that can be found."""
    keys = SERIES[kind].format(a=0, b=sessions - 1, name="k")
    store = await open_store(url, WINDOW)
    try:
        for text in FILL:
            await _run(store, text.format(keys=keys, text=TEXT, today=day_of(now_ms())))
        if kind == "postgres":
            await _run(store, ANALYZE)
        while await store.search.index():
            pass
        if kind == "postgres":
            await _run(store, ANALYZE)
    finally:
        await store.database.close()


async def _run(store: Store, sql: str) -> None:
    await store.database.write(Step(Statement("fill", sql, sql, None), {}))

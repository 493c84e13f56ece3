"""A load costs its window, not the history: what runs per turn and per sweep goes by index, on both databases."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shared.store import Store
from shared.store.database.postgres import PostgresDatabase
from shared.store.database.statements import STATEMENTS
from tests.store.books import ask, raw, write
from tests.support.pipe import key_of

QUERIES: dict[str, dict[str, Any]] = {
    "load": {
        "session_key": key_of("7"),
        "id": "in_7",
        "limit": 50,
        "left_by": "turn_7",
        "notes_of": "agent:main:webhook:other:memory:u=7",
        "notes_limit": 50,
        "homes": "homes",
    },
    "load_window": {"session_key": key_of("7"), "limit": 50, "before": 10**9},
    "inbox_by_id": {"id": "in_7"},
    "pending_of_key": {"session_key": key_of("7"), "after": 0, "limit": 50},
    "pending_keys": {"after": "", "before": 10**15, "limit": 50},
    "outbox_of": {"destination": "to:webhook:7", "limit": 50},
    "outbox_take": {"destination": "to:webhook:7", "lease": "lease-7", "now": 1},
    "outbox_sent_as": {"id": 7},
    "outbox_of_turn": {"turn_id": "turn_7"},
    "outbox_of_session": {"session_key": key_of("7"), "after": 0, "limit": 50},
    "outbox_of_session_postgres": {"session_key": key_of("7"), "after": 0, "until": 10**9, "limit": 50},
    "outbox_destinations": {"after": "", "before": 10**15, "limit": 50},
    "session_by_key": {"session_key": key_of("7")},
    "notes_of": {"owner": "agent:main:webhook:other:memory:u=7", "limit": 50},
    "flush_of": {"session_id": "ses_7"},
    "flush_due": {"before": 500, "limit": 50},
    "flush_candidates": {"after": 2, "after_id": "", "before": 3, "limit": 50},
    "flush_rows": {"session_id": "ses_7", "after": 40, "limit": 50},
    "sessions_of_owner": {"owner": "webhook:u=7", "but": "", "untitled": 1, "pattern": "%", "place": "", "limit": 10},
    "session_of_owner": {"owner": "webhook:u=7", "wanted": "ses_7", "numbered": "ses!_7 #%"},
    "title_of_owner": {"owner": "webhook:u=7", "title": "trip", "but": ""},
    "load_bare": {"session_key": key_of("7")},
    "user_rows": {"session_id": "ses_7", "skip": 3},
    "first_user_rows": {"session_id": "ses_7", "limit": 5},
    "messages_of_session": {"session_id": "ses_7", "limit": 50},
    "rows_to_compress": {"session_id": "ses_7", "after": 10, "until": 40, "limit": 50},
    "sessions_listed": {"since": 0, "limit": 50},
    "search_due": {"limit": 50},
    "search_texts": {"sessions": '[{"id": "ses_7", "after": 0, "upto": 50}]'},
    "search_tail": {"owner": "webhook:u=7", "limit": 50},
    "search_tail_of_all": {"limit": 50},
    "schedules_due": {"now": 500, "limit": 50},
    "schedules_next": {},
    "waiting_fires": {"session_key": key_of("7")},
    "last_ended": {"schedule_id": "sch_7", "limit": 5},
    "task_by_id": {"id": "task_7"},
    "tasks_of": {"root_key": key_of("7"), "limit": 50},
    "unseen_tasks": {"before": 500, "limit": 50},
    "tasks_to_forget": {"before": 1},
    "forget_tasks": {"rows": '[{"id": "task_7"}]'},
    "end_noted": {"now": 1},
    "usage_of_session": {"session_id": "ses_7"},
    "usage_last_prompt": {"session_id": "ses_7"},
    "usage_of_owner": {"owner": "webhook:u=7", "day": "2026-11-16"},
    "overview_counts": {"bound": 101},
    "parts_oldest": {"bound": 101},
    "waiting_of_keys": {"keys": f'["{key_of("7")}", "{key_of("8")}"]'},
    "parts_open": {"destination": "to:webhook:7", "id": 0, "limit": 50},
    "parts_flagged": {"before": 10**9, "limit": 50},
    "parts_of_conversation": {"session_key": key_of("7"), "limit": 50},
    "destinations_open": {"after": "to:webhook:7", "bound": 100, "limit": 50},
    "parts_waiting": {"destination": "to:webhook:7", "limit": 50},
    "closed_chat": {"destination": "to:webhook:7"},
    "closed_chats_page": {"after": "to:webhook:7", "limit": 50},
    "dead_page": {"state": "open", "before": 10**9, "limit": 50},
    "dead_matching": {"kind": None, "reason": "r", "session_key": None},
    "dead_next": {"kind": None, "reason": "r", "session_key": None, "after": 0, "newest": 10**9, "limit": 50},
    "dead_of_conversation": {"session_key": key_of("7"), "limit": 50},
    "stage_moments": {"since": 10, "limit": 50},
    "asks_page": {"after_at": 1, "after_id": "ask_7", "limit": 50},
    "asks_of_key": {"session_key": key_of("7"), "limit": 50},
    "open_asks": {"session_key": key_of("7")},
    "schedules_page": {"after_at": 1, "after_id": "sch_7", "state": None, "limit": 50},
    "sessions_before": {"before": 10**9, "before_id": "", "limit": 50},
    "sessions_of_person": {"owner": "webhook:u=7", "limit": 50},
    "audit_list": {"before": 10**9, "limit": 50},
    "expired_inbox": {"before": 10**9, "turns_before": 10**9, "limit": 50},
    "emptied_page": {"after": 0, "after_id": "", "turns_before": 10**9, "limit": 50},
    "outbox_page": {"after": 0, "limit": 50},
    "old_letters_page": {"state": "open", "after": 0, "limit": 50},
    "old_audit_page": {"after": 0, "limit": 50},
    "expired_turns": {"first": "turn_", "beyond": "turn_7", "before": 10**9, "limit": 50},
    "superseded_rows": {"before": 10**9, "limit": 50},
    "expired_session": {"before": 10**9, "noted": 1},
    "prune_blob_references": {"before": 10**9, "limit": 50},
    "session_rows": {"session_id": "ses_7", "limit": 50},
    "indexed_page": {"after": 0, "limit": 50},
    "spans_page": {"after": 0, "limit": 50},
    "search_last_spans": {"sessions": '[{"id": "ses_7"}]'},
    "spans_of_owner": {"masks": ["x00"] * 7, "owner": "webhook:u=7", "before": 10**9, "limit": 50},
    "spans_of_all": {"masks": ["x00"] * 7, "before": 10**9, "limit": 50},
    "rows_of_spans": {
        "spans": '[{"place": 1, "session_id": "ses_7", "since_n": 1, "last_n": 9}]',
        "owner": None,
        "plain": None,
        "rows": 9,
    },
}
OF_ONE_DATABASE = {
    "sqlite": {"outbox_of_session", "indexed_page"},
    "postgres": {
        "outbox_of_session_postgres",
        "spans_page",
        "search_last_spans",
        "spans_of_owner",
        "spans_of_all",
        "rows_of_spans",
    },
}
# 400 conversations of 50 messages each; two in a hundred inbounds and parts are still open.
FILL = (
    """INSERT INTO routes SELECT 'agent:main:webhook:dm:' || k, 'ses_' || k, 25, 24, 1 FROM {keys}""",
    """INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, owner, {indexed})
       SELECT 'ses_' || k, 'agent:main:webhook:dm:' || k, 24, 'turn', 50, 1, k, 'webhook:u=' || k,
              CASE WHEN k < 8 THEN 40 ELSE 50 END FROM {keys}""",
    """INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                          cost_nano, priced, updated_at)
       SELECT 'ses_' || k, 'webhook:u=' || k, 'main', 'm', '2026-11-' || n, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM {keys}, {numbers}""",
    """INSERT INTO messages (session_id, n, turn_id, role, text, data, created_at)
       SELECT 'ses_' || k, n, 'turn_' || k, 'user', 'some words that were said', '{{}}', 1 FROM {keys}, {numbers}""",
    """INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at)
       SELECT 'in_' || (k * 50 + n), 'e', 'webhook', 'agent:main:webhook:dm:' || k, n, 'some words that were said',
              CASE WHEN n = 50 THEN 'pending' ELSE 'answered' END, 1 FROM {keys}, {numbers}""",
    """INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
       SELECT 'o', 'turn_' || (k * 50 + n), 1, 'agent:main:webhook:dm:' || k, 'to:webhook:' || k, 'webhook', 'some words',
              CASE WHEN n = 50 THEN 'pending' ELSE 'sent' END, 1 FROM {keys}, {numbers}""",
    """INSERT INTO dead (kind, ref, session_key, reason, detail, payload, state, created_at)
       SELECT 'inbound', 'in_' || k, 'agent:main:webhook:dm:' || k, 'r', 'd', 'some words',
              CASE WHEN n = 50 THEN 'open' ELSE 'dropped' END, 1 FROM {keys}, {numbers}""",
    """INSERT INTO audit (at, who, role, action, target, outcome)
       SELECT 1, 'ann', 'admin', 'release key', 'agent:main:webhook:dm:' || k, 'done' FROM {keys}, {numbers}""",
    """INSERT INTO notes (owner, text, session_id, created_at)
       SELECT 'agent:main:webhook:other:memory:u=' || k, 'some words', 'ses_' || k, 1 FROM {keys}, {numbers}""",
    """INSERT INTO schedules (id, name, owner, agent, rule, text, targets, missed, overlap, state, due_at, look_at, claim,
                              created_at)
       SELECT 'sch_' || (k * 50 + n), 'n', 'webhook:u=' || k, 'main', 'at 1', 'x', '[]', 'last', 'skip',
              CASE WHEN n = 50 THEN 'active' ELSE 'ended' END, k, k, '', 1 FROM {keys}, {numbers}""",
    """INSERT INTO schedule_fires SELECT 'sch_' || k, n, 0, 'fired', NULL, 'in_' || (k * 50 + n), 1 FROM {keys}, {numbers}""",
    """INSERT INTO tasks (id, kind, name, text, root_key, parent_key, parent, asked_by, owner, depth, inbound_id, state, asked_at,
                          created_at, ended_at)
       SELECT 'task_' || (k * 50 + n), 'agent', 'n', 'x', 'agent:main:webhook:dm:' || k, 'p', '{{}}', '{{}}', 'o', 1,
              'in_' || (k * 50 + n), CASE WHEN n = 50 THEN 'running' ELSE 'done' END, 1, k,
              CASE WHEN n = 50 THEN NULL ELSE 2 END FROM {keys}, {numbers}""",
    """INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
       SELECT 'turn_' || (k * 50 + n), 'ses_' || k, 'agent:main:webhook:dm:' || k, n, 'answered', 1, 'w', 1, 1, 1
       FROM {keys}, {numbers}""",
    """INSERT INTO asks (id, run_id, session_key, session_id, name, text, choices, is_approval, source, state, answer, created_at)
       SELECT 'ask_' || (k * 50 + n), 'run', 'agent:main:webhook:dm:' || k, 'ses_' || k, 'n', 'which?', '[]', 0, '{{}}',
              CASE WHEN n = 50 THEN 'open' ELSE 'answered' END, '', 1 FROM {keys}, {numbers}""",
    """INSERT INTO blob_references SELECT 'd_' || (k * 50 + n), 'ses_' || k, 1 FROM {keys}, {numbers}""",
    """INSERT INTO flushes SELECT 'ses_' || (k * 50 + n), 'agent:main:webhook:dm:' || k,
              CASE WHEN n = 50 THEN 'due' ELSE 'done' END, 50, 1, k, '' FROM {keys}, {numbers}""",
)
SERIES = {
    True: "generate_series(1, {n}) AS {name}({column})",
    False: "(WITH RECURSIVE s(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s WHERE x < {n}) SELECT x AS {column} FROM s) AS {name}",
}


@pytest.fixture
async def filled(store: Store) -> Store:
    series = SERIES[isinstance(store.database, PostgresDatabase)]
    parts = {
        "keys": series.format(n=400, name="keys", column="k"),
        "numbers": series.format(n=50, name="numbers", column="n"),
    }
    parts["indexed"] = "indexed" if isinstance(store.database, PostgresDatabase) else "searched"
    for statement in FILL:
        await write(store, statement.format(**parts))
    if isinstance(store.database, PostgresDatabase):
        await write(store, "ANALYZE")  # it does so by itself after a while; SQLite does not, and nobody asks it to
    return store


async def full_scans(store: Store, name: str, values: dict[str, Any]) -> list[str]:
    """The lines of a query's plan that read a whole table."""
    if isinstance(store.database, PostgresDatabase):
        rows = await ask(store, f"EXPLAIN {STATEMENTS[name].postgres}", **values)
        return [row["QUERY PLAN"] for row in rows if "Seq Scan" in row["QUERY PLAN"]]
    rows = await ask(store, f"EXPLAIN QUERY PLAN {STATEMENTS[name].sqlite}", **values)
    made = ("CO-ROUTINE", "MATERIALIZE")  # from rows whose own plan is among these lines
    within = {row["detail"].split()[-1] for row in rows if row["detail"].startswith(made)}
    scans = [
        row["detail"]
        for row in rows
        if re.match(r"SCAN (?!CONSTANT ROW|json_each |.*USING (COVERING )?INDEX)", row["detail"])
    ]
    return [line for line in scans if line.split()[1] not in within]


async def test_what_the_pipeline_reads_it_reads_by_index(filled: Store) -> None:
    mine = {name: values for name, values in QUERIES.items() if getattr(STATEMENTS[name], filled.database.dialect)}
    dialect = filled.database.dialect
    others = set[str]().union(*(names for of, names in OF_ONE_DATABASE.items() if of != dialect))
    assert mine.keys() == QUERIES.keys() - others
    found = {name: await full_scans(filled, name, values) for name, values in mine.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


async def test_the_look_for_full_scans_finds_one(filled: Store) -> None:
    assert await full_scans(filled, "inbox_by_event", {"event_id": "e"})


async def test_a_loaded_window_is_the_end_of_a_long_transcript(filled: Store) -> None:
    session, standing = await filled.transcript.load(key_of("7"), "in_400")
    assert (session.version, session.message_count, len(session.history)) == (24, 50, 4)
    assert standing is not None and standing.state == "pending"
    assert await filled.database.read(raw("SELECT COUNT(*) AS n FROM messages")) == [[{"n": 20_000}]]

"""What a run left behind: every row of the database, every callback, every turn that began. Read after quiescence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from shared import keys
from tests.faults.load import FLOOD, Message
from tests.support.cluster import Cluster
from tests.support.platform import Platform
from tests.support.scripted import Noted, read_log

Row = dict[str, Any]
TASK = ":task:"  # in keys: a task in the background, which only a command of the flood starts
TABLES = {
    "inbox": "SELECT id, event_id, session_key, seq, state, reason, attempts, turn_id, received_at, finished_at FROM inbox ORDER BY session_key, seq",
    "routes": "SELECT session_key, last_seq, done_seq FROM routes",
    "sessions": "SELECT id, session_key, version, message_count FROM sessions",
    "messages": "SELECT session_id, n, turn_id, role, text, inbound_id, data FROM messages ORDER BY session_id, n",
    "turns": "SELECT id, session_id, session_key, version, outcome, worker, committed_at FROM turns ORDER BY session_key, version",
    "outbox": "SELECT id, idempotency_key, turn_id, ordinal, destination, state, attempts, ambiguous FROM outbox ORDER BY id",
    "dead": "SELECT kind, ref, session_key, reason, detail, attempts FROM dead ORDER BY id",
}


def query(database_url: str, sql: str) -> list[Row]:
    """Rows of either database, read directly: the checker must not share the code that it checks."""
    if database_url.startswith("sqlite:"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"), timeout=30)) as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, values, strict=True)) for values in cursor]
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        return connection.execute(sql.encode()).fetchall()


def waiting(database_url: str) -> tuple[int, int]:
    """How many inbounds and outbox rows have not ended."""
    sql = (
        "SELECT (SELECT COUNT(*) FROM inbox WHERE state = 'pending') AS inbound, "
        "(SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'sending')) AS outbound"
    )
    [row] = query(database_url, sql)
    return row["inbound"], row["outbound"]


@dataclass(frozen=True, slots=True)
class Evidence:
    accepted: dict[str, Message]  # by message id: everything that was answered 2xx, but for the flood
    flood: dict[str, Message]  # the same of the commands that were thrown at chats of their own
    inbox: list[Row]
    routes: list[Row]
    sessions: list[Row]
    messages: list[Row]
    turns: list[Row]
    outbox: list[Row]
    dead: list[Row]
    platform: Platform
    noted: list[Noted]
    expired: frozenset[str]  # keys whose lease a housekeeper found expired
    died_at: dict[int, float]  # pid -> when that process ended
    residue: list[str]
    leases_forgotten: bool  # FLUSHALL: Redis itself forgot who held what
    stood_still: tuple[str, ...]  # messages that were their key's first for too long
    away: list[tuple[float, float]]  # when Redis, the database or the platform could not be reached, on CLOCK_MONOTONIC

    @staticmethod
    def of_flood(row: Row) -> bool:
        """Whether a row with a session key belongs to a chat of commands: there /new, /undo and /stop change what is kept, and
        /goal and /background send messages by themselves."""
        return f":{FLOOD}" in row["session_key"] or TASK in row["session_key"]


def gather(
    accepted: Iterable[Message],
    database_url: str,
    platform: Platform,
    cluster: Cluster,
    *,
    leases_forgotten: bool,
    away: Iterable[tuple[float, float]] = (),
    stood_still: Iterable[str] = (),
) -> Evidence:
    """Everything that the checkers look at."""
    sent = list(accepted)
    tables = {name: query(database_url, sql) for name, sql in TABLES.items()}
    expiries = (line for line in cluster.log_lines("housekeep") if line.get("event") == "lease expired, woken again")
    return Evidence(
        accepted={message.id: message for message in sent if not message.is_flood},
        flood={message.id: message for message in sent if message.is_flood},
        platform=platform,
        noted=read_log(cluster.turn_log),
        expired=frozenset(line["key"] for line in expiries if line["lane"] == "turns"),
        died_at={life.pid: life.ended_at for life in cluster.lives if life.ended_at is not None},
        residue=residue(cluster),
        leases_forgotten=leases_forgotten,
        stood_still=tuple(stood_still),
        away=sorted(away),
        **tables,
    )


def residue(cluster: Cluster) -> list[str]:
    """What is left in Redis of our own names, and of those of RQ's that would grow with every message. The housekeepers' sign of
    life may stay: they run."""
    found: set[str] = set()
    for client in cluster.valkeys.clients:
        for pattern in ("kt:*", "rq:queue:*", "rq:wip:*", "rq:finished:*"):
            found |= {name.decode() for name in client.scan_iter(pattern, count=1000)}
    return sorted(found - {keys.HOUSEKEEPER})


def stuck(database_url: str, cluster: Cluster, at_most: int = 8) -> str:
    """What has not ended, and what Redis knows of it: the message of a run that did not come to rest."""
    lines = []
    inbox = query(
        database_url, "SELECT id, session_key, seq, attempts, reason FROM inbox WHERE state = 'pending' ORDER BY seq"
    )
    outbox = query(
        database_url,
        "SELECT id, destination, state, attempts, ambiguous, reason FROM outbox WHERE state IN ('pending', 'sending') ORDER BY id",
    )
    for lane, rows, name in (("turns", inbox, "session_key"), ("deliveries", outbox, "destination")):
        lines.append(f"{lane}: {len(rows)} rows in {len({row[name] for row in rows})} keys have not ended")
        for row in rows[:at_most]:
            state: Any = cluster.redis.hgetall(f"kt:{lane}:lane:{row[name]}")
            mail: Any = cluster.redis.zcard(f"kt:{lane}:mail:{row[name]}")
            due: Any = cluster.redis.zscore(f"kt:{lane}:due", row[name])
            lines.append(f"  {row} lane={state} mail={mail} due={due}")
    standing = [f"{m.name}{'' if m.running else ' (down)'}" for m in cluster.members]
    return "\n".join([*lines, f"members: {', '.join(standing)}"])

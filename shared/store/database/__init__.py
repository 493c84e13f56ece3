"""A transaction is a list of statements, sent whole.

Both databases run the same files. A statement that depends on an earlier one says so in SQL, not in Python, so an
operation is written once, costs one round trip, and is all or nothing. A statement whose first line begins with
`-- [name]` gives what the later ones of its list select from as `{{name}}`: for SQLite, statement by statement, that is
the subselect below; PostgreSQL gets the whole list as one statement of common table expressions.

A list to write that ends with a query is answered by that alone. Rows that are returned one by one cost a busy process more
than all the rest: each is a fight for the interpreter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

from shared.errors import ConfigurationError
from shared.store.database.statements import STATEMENTS, Statement, Step

__all__ = ["Database", "Row", "Step", "open_database", "step"]

Row = dict[str, Any]
_SQL = Path(__file__).parents[1] / "sql"
_GIVES = re.compile(r"-- \[([a-z]+)\]")
_WHERE_OURS = "ON ours.id = value ->> 'session_id' AND ours.turn_id = value ->> 'turn_id'"
# Whether all of a turn's mail still waits: a message that an operator drops is not ended twice. One look-up by id for each
# message: written as a join, PostgreSQL read the whole inbox for each turn, and 2,000 turns a second became 1,000.
_MAIL_WAITS = """CAST(turn.value ->> 'waiting' AS INTEGER) = (
        SELECT count((SELECT 1 FROM inbox WHERE inbox.id = mail.value ->> 'id' AND inbox.state = 'pending' {lock}))
        FROM {each}(turn.value -> 'mail') AS mail)"""
_WORDS = {  # what each calls a thing that both have; `each` gives the elements of a JSON list as `value`
    "sqlite": {
        "json_list": "json_group_array",
        "json_row": "json_array",
        "json_object": "json_group_object",
        "each": "json_each",
        "now_ms": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        "where_ours": f"JOIN sessions AS ours {_WHERE_OURS}",
        "mail_waits": _MAIL_WAITS.format(each="json_each", lock=""),
        "all_ours": f"json_each(:turns) JOIN sessions AS ours {_WHERE_OURS}",
        "all_parts": "json_each(:turns) JOIN outbox AS parts ON parts.turn_id = value ->> 'turn_id'",
    },
    "postgres": {
        "json_list": "json_agg",
        "json_row": "json_build_array",
        "json_object": "json_object_agg",
        "each": "jsonb_array_elements",
        "now_ms": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        "where_ours": f"JOIN ours {_WHERE_OURS}",
        # Locked, so that a drop that is not committed yet is waited for and then seen.
        "mail_waits": _MAIL_WAITS.format(each="jsonb_array_elements", lock="FOR NO KEY UPDATE"),
        "all_ours": "ours",
        "all_parts": "parts",
    },
}
_GIVEN = {
    "ours": "(SELECT version FROM sessions WHERE id = :session_id AND turn_id = :turn_id) AS ours",
    "buried": """(
        SELECT id FROM outbox
        WHERE id = :id AND state = 'buried'
          AND NOT EXISTS (SELECT 1 FROM dead WHERE kind = 'reply' AND ref = :ref AND state = 'open')
        ) AS buried""",
    "flushed": """(
        SELECT session_id FROM flushes
        WHERE session_id = :session_id AND turn_id = :turn_id AND state = 'done'
        ) AS flushed""",
    "noted": "(SELECT name FROM facts WHERE scope = :scope AND name = :name AND value = :token) AS noted",
    "numbered": """(
        SELECT last_seq FROM routes
        WHERE session_key = :session_key AND changes() > 0
        ) AS numbered""",  # changes(): of the statement just before, which gave a number or did not
}


def _load(path: Path) -> Statement:
    first, *lines = path.read_text().splitlines()
    gives = _GIVES.match(first)
    sqlite = body = "\n".join(lines)
    for name, subselect in _GIVEN.items():
        sqlite = sqlite.replace("{{" + name + "}}", subselect)
    postgres = _worded(body, "postgres").replace("{{", "").replace("}}", "")
    return Statement(path.stem, _worded(sqlite, "sqlite"), postgres, gives[1] if gives else None)


def _worded(body: str, dialect: str) -> str:
    for word, name in _WORDS[dialect].items():
        body = body.replace("{{" + word + "}}", name)
    return body


STATEMENTS.update({path.stem: _load(path) for path in sorted(_SQL.glob("*.sql"))})


def step(name: str, /, **values: Any) -> Step:
    return Step(STATEMENTS[name], values)


class Database(Protocol):
    """Raises Unavailable for an outage (an allow list of errors that pass by themselves) and AlreadyDone when a unique id
    exists. Any other error is raised as it is: it would come again, so it belongs to whom the statements are for."""

    dialect: str  # sqlite or postgres: for the few statements that each has in its own words

    async def write(self, *steps: Step, may_wait: bool = False, gives_up: bool = False) -> list[list[Row]]:
        """Run the steps in one transaction. It is durable when this returns; after an error, all or nothing of it is.

        Gives the rows that each step returned, or, where the last is a query, its rows and nothing else. `may_wait`: some
        milliseconds, for others to share a commit with. `gives_up`: raise Locked after a short wait for a locked row.
        """

    async def read(self, *steps: Step) -> list[list[Row]]:
        """Run queries beside the writers."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date and name the migrations applied."""

    async def pending_migrations(self) -> list[str]:
        """What `migrate` would apply."""

    async def close(self) -> None: ...


async def open_database(url: str) -> Database:
    """The database at `url`, ready for use."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from shared.store.database.sqlite import Sqlite

        return Sqlite(Path(url.removeprefix("sqlite:///")))
    if scheme in ("postgresql", "postgres"):
        from shared.store.database.postgres import Postgres

        return await Postgres.open(url)
    raise ConfigurationError("DATABASE_URL must begin with sqlite:/// or postgresql://")

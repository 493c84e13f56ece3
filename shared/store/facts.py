"""Facts: small named values that a turn needs, by scope, in table facts. A commit changes them (`Change.facts`) in its one
transaction, so a turn that loses the race, or crashes before its commit, changes none.

| scope | name | value |
|---|---|---|
| a session's id | `goal` | JSON: objective, status and more; shared/context/runtime.py |
| a session's id | `model` | the model that /model switched to: one of LLM__MODELS |
| a session's id | `summary`, `consolidated` | what was summarised; the number of the last row in it: up to it all are inactive |
| a session's id | `compress_failed` | JSON: how often in a row compressing by itself failed, and when to try again (ms) |
| a session's id | `asking` | the runs that wait for a person, separated by spaces; workers/turn/asking.py |
| a session's id | `topic` | the name of the topic, which platforms give on some messages only |
| `homes` | a platform | JSON: chat, name, thread and account of the home channel that /sethome chose |
| a session's id | `reset_reason` | why the conversation before it ended by itself: idle or daily. Consumed by its first turn |
| a session's id | `reset_active` | 1: something had been said in that one, 0: not. Consumed with `reset_reason` |
| a session's id | `resumed_at` | wall clock, ms: somebody came back to it then; it has not been idle since |
| an older gateway's memory | `note:<digest>` | which import brought that note of its memory files; keyturn/importing/memory.py |
| `secrets` | `sender_key` | what the deployment made up for itself; shared/store/secrets.py |
| `stateless` | a message's id | wall clock, ms: its request has ended and is to be forgotten; shared/store/stateless.py |
| `ending` | a session key | why its session is to end when no message of it waits; shared/store/endings.py |
| `forgetting` | a file's digest | wall clock, ms: it is to be removed since then; shared/operating/forgetting.py |
| a session's id | `joined:<session key>` | that key talks to this session, having come by /resume or having been met there |
"""

from __future__ import annotations

from typing import Protocol

from shared.store.database import Database
from shared.store.database.statements import Step, declared

HOMES = "homes"  # the scope of home channels


class FactsSql(Protocol):
    """The statements of facts.sql, with the values that each needs."""

    def facts_of(self, *, scope: str) -> Step: ...


sql = declared(FactsSql)


class FactStore:
    """Reads facts; commits write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, scope: str) -> dict[str, str]:
        """All facts of a scope by name."""
        [rows] = await self._database.read(sql.facts_of(scope=scope))
        return {row["name"]: row["value"] for row in rows}

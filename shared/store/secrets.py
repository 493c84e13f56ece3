"""Secrets that a deployment makes up for itself, once: all processes that share the database have the same.

They are rows of table facts under a scope of their own. Of several processes that make the same secret up at once, or crash
while they do, the first that wrote it wins and all others read it. Whoever can read them can read all conversations.
"""

from __future__ import annotations

import secrets
from typing import Protocol

from shared.store.database import Database
from shared.store.database.statements import Step, declared
from shared.store.facts import FactStore

SCOPE = "secrets"
SENDER_KEY = "sender_key"  # of the marks that tell senders apart
_BYTES = 32


class SecretsSql(Protocol):
    """The statements of secrets.sql, with the values that each needs."""

    def fact_if_none(self, *, scope: str, name: str, value: str) -> Step: ...


sql = declared(SecretsSql)


class Secrets:
    """Gives the same secret to every process of a deployment."""

    def __init__(self, database: Database, facts: FactStore) -> None:
        self._database = database
        self._facts = facts
        self._known: dict[str, str] = {}

    async def of(self, name: str) -> str:
        """The secret of that name, 64 hexadecimal digits. Made by whoever asks first, and read once per process."""
        if name not in self._known:
            kept = await self._facts.of(SCOPE)
            if name not in kept:
                made = secrets.token_hex(_BYTES)
                await self._database.write(sql.fact_if_none(scope=SCOPE, name=name, value=made))
                kept = await self._facts.of(SCOPE)  # another process may have been faster
            self._known[name] = kept[name]
        return self._known[name]

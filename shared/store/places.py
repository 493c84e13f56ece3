"""Which conversations a chat has. Reads table routes and writes nothing."""

from __future__ import annotations

from typing import Protocol

from shared.address import Address
from shared.messages import CHAT_TYPES
from shared.session_key import SessionKey
from shared.store.database import Database
from shared.store.database.statements import Step, declared

KEYS_LIMIT = 100  # of one chat and type: more are several people's, whichever they are


class PlacesSql(Protocol):
    """The statements of places.sql, with the values that each needs."""

    def keys_in_place(self, *, first: str, tagged: str, beyond: str, pattern: str, limit: int) -> Step: ...


sql = declared(PlacesSql)


class Places:
    """The conversations of a chat, found by the chat's id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def conversations(self, address: Address, agent: str) -> list[SessionKey]:
        """The keys of the agent's conversations at an address: one for all people there, or one for each."""
        found = await self._database.read(*(_keys_like(address, agent, chat_type) for chat_type in sorted(CHAT_TYPES)))
        keys = [SessionKey.parse(row["session_key"]) for rows in found for row in rows]
        here = (*address.place, agent, address.thread)
        return [key for key in keys if (key.platform, key.account, key.chat, key.agent, key.thread) == here]


def _keys_like(address: Address, agent: str, chat_type: str) -> Step:
    first = str(SessionKey(agent, address.platform, address.account, chat_type, address.chat))
    # ";" is the character after ":"
    return sql.keys_in_place(
        first=first, tagged=f"{first}:", beyond=f"{first};", pattern=f"{first}:%", limit=KEYS_LIMIT
    )

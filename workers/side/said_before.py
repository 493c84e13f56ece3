"""Finds where somebody said something: in their own sessions only and, where others read along, only what this chat has heard."""

from __future__ import annotations

from shared.errors import Malformed
from shared.session_key import SessionKey
from shared.store import Store
from shared.store.search import Found


async def said_before(store: Store, here: SessionKey, owner: str, words: str) -> Found | None:
    """What the owner may be shown `here`. None where there are no words to look for."""

    def may_be_shown(session_key: str) -> bool:
        try:
            there = SessionKey.parse(session_key)
        except Malformed:
            return False
        return here.chat_type == "dm" or (there.chat_type, there.scope, there.chat) == (
            here.chat_type,
            here.scope,
            here.chat,
        )

    return await store.search.find(words, owner, only=may_be_shown)

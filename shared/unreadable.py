"""Stands in for a message that cannot be read: enough to end it and to tell its chat."""

from __future__ import annotations

from shared.control import conversation_of
from shared.messages import Inbound, Source
from shared.session_key import SessionKey


def stand_in(id: str, key: str) -> Inbound:
    session_key = SessionKey.parse(conversation_of(key))
    source = Source(session_key.platform, session_key.chat, session_key.chat_type, session_key.account)
    return Inbound(id, "", source, "")

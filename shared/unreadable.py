"""What stands in for a message that cannot be read: enough to end it and to tell its chat."""

from __future__ import annotations

from shared.lane_key import conversation_of
from shared.messages import Inbound
from shared.session_key import SessionKey


def stand_in(id: str, key: str) -> Inbound:
    """An inbound without words, from where the conversation of `key` takes place."""
    return Inbound(id, "", SessionKey.parse(conversation_of(key)).source, "")

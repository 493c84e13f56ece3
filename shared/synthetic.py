"""Synthetic messages: ours, to see that a message still comes all the way. Each has a conversation of its own, which no list
shows and which is forgotten when it has ended (shared/store/stateless.py)."""

from __future__ import annotations

from shared.codec import message_id
from shared.messages import Kind, OwnInbound, Source
from shared.session_key import MAIN, SessionKey

OUTLET = "synthetic"  # stands for a platform in keys and addresses


def synthetic_inbound(slot: int, now_ms: int) -> OwnInbound:
    """The message of one time slot. Its id follows from the slot, so of several housekeepers one sends it. Its text says when."""
    event_id = f"syn_{slot}"
    return OwnInbound(
        message_id(OUTLET, "", event_id),
        event_id,
        Source(OUTLET, str(slot)),
        str(now_ms),
        received_at=now_ms,
        purpose=Kind.CHECK,
    )


def synthetic_key(slot: int) -> SessionKey:
    """The conversation of one time slot."""
    return SessionKey(MAIN, OUTLET, "", "dm", str(slot))


_BEGINS = str(synthetic_key(0)).removesuffix("0")


def is_synthetic(session_key: str) -> bool:
    """Whether a session key is that of a synthetic message."""
    return session_key.startswith(_BEGINS)

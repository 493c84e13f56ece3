"""Reply parts as rows of table outbox: what a commit, a rejection and a refusal have to say in a chat.

Rows are made here and written by the transaction that decides them, so a part exists only together with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from shared.codec import encode_text, storable
from shared.lane_key import Destination, conversation_of
from shared.messages import Mail, Reply


class PartRow(TypedDict):
    """One part that is to be sent. `now` is when it was decided."""

    idempotency_key: str
    turn_id: str
    ordinal: int
    session_key: str  # the key whose mail it answers
    conversation: str  # the session key where readers find it: that of a control message is the conversation's
    destination: str
    platform: str
    payload: str
    now: int


def parts_of(
    mail: Sequence[Mail], replies: Sequence[Reply], *, turn_id: str, session_key: str, now: int
) -> tuple[str, list[PartRow]]:
    """The destination and one row per reply. Replies go where the last of the mail came from; without mail there are none."""
    if not mail:
        return "", []
    source, answers = mail[-1].inbound.source, mail[-1].inbound.message
    destination = str(Destination(source.platform, source.account, source.chat))
    in_reply_to = [m.inbound.event_id for m in mail]
    conversation = conversation_of(session_key)
    rows: list[PartRow] = []
    for ordinal, reply in enumerate(replies, 1):
        payload = {
            "source": source,
            "in_reply_to": in_reply_to,
            "part": ordinal,
            "parts": len(replies),
            "text": storable(reply.text),
            "media": reply.media,
            "answers": answers,
        }
        rows.append(
            {
                "idempotency_key": f"out_{turn_id}_{ordinal}",
                "turn_id": turn_id,
                "ordinal": ordinal,
                "session_key": session_key,
                "conversation": conversation,
                "destination": destination,
                "platform": source.platform,
                "payload": encode_text(payload),
                "now": now,
            }
        )
    return destination, rows

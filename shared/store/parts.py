"""Reply parts as rows of table outbox: what a commit, a rejection and a refusal have to say in a chat.

Rows are made here and written by the transaction that decides them, so a part exists only together with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from shared.address import Address
from shared.codec import encode_text, storable
from shared.errors import Malformed
from shared.lane_key import Destination, conversation_of
from shared.messages import Mail, Reply
from shared.session_key import check_id


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
    """Where the last of the mail came from, and one row per reply, in order. Replies go there, unless they name another
    address; without mail there are none. Malformed for an address that is none.
    """
    if not mail:
        return "", []
    source, answers = mail[-1].inbound.source, mail[-1].inbound.message
    destination = str(Destination(*source.address.place))
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
        to = reply.to
        if to is not None:
            payload |= {"to": _checked(to), "answers": answers if to == source.address else None}
        if reply.edits is not None:
            payload["edits"] = reply.edits
        rows.append(
            {
                "idempotency_key": f"out_{turn_id}_{ordinal}",
                "turn_id": turn_id,
                "ordinal": ordinal,
                "session_key": session_key,
                "conversation": conversation,
                "destination": destination if to is None else str(Destination(*to.place)),
                "platform": source.platform if to is None else to.platform,
                "payload": encode_text(payload),
                "now": now,
            }
        )
    return destination, rows


def _checked(to: Address) -> Address:
    """Malformed for an address that an agent made up of nothing, or of more than our stores keep."""
    if not to.platform or not to.chat:
        raise Malformed("an address has a platform and a chat")
    for id in (to.account, to.chat, to.thread):
        check_id(id)
    return to

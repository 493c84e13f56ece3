"""Reply parts as rows of table outbox: what a commit, a rejection and a refusal have to say in a chat.

Rows are made here and written by the transaction that decides them, so a part exists only together with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from shared.address import Address
from shared.codec import storable
from shared.errors import Malformed
from shared.lane_key import Destination, conversation_of
from shared.messages import Kind, Mail, Part, Reply
from shared.part_record import PartRecord, encode_part
from shared.session_key import check_id
from shared.tracing import traceparent


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


def turn_of_part(part: Part) -> str:
    """The turn, or the draft, that a part is a row of."""
    return part.idempotency_key.removeprefix("out_").rpartition("_")[0]


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
    if not replies:
        return destination, []
    in_reply_to = tuple(
        m.inbound.event_id for m in mail if m.inbound.kind not in (Kind.ANNOUNCEMENT, Kind.RESULT, Kind.STEP)
    )
    conversation, trace = conversation_of(session_key), traceparent()
    rows: list[PartRow] = []
    for ordinal, reply in enumerate(replies, 1):
        to = _checked(reply.to)
        record = PartRecord(
            source,
            in_reply_to,
            ordinal,
            len(replies),
            storable(reply.text),
            reply.media,
            answers if to is None or to == source.address else None,
            to,
            reply.edits,
            reply.draft,
            len(reply.shown) if reply.text.startswith(reply.shown) else 0,
            trace,
            reply.choices,
        )
        rows.append(
            {
                "idempotency_key": f"out_{turn_id}_{ordinal}",  # see turn_of_part
                "turn_id": turn_id,
                "ordinal": ordinal,
                "session_key": session_key,
                "conversation": conversation,
                "destination": destination if to is None else str(Destination(*to.place)),
                "platform": source.platform if to is None else to.platform,
                "payload": encode_part(record),
                "now": now,
            }
        )
    return destination, rows


def _checked(to: Address | None) -> Address | None:
    """Malformed for an address that an agent made up of nothing, or of more than our stores keep."""
    if to is None:
        return None
    if not to.platform or not to.chat:
        raise Malformed("an address has a platform and a chat")
    for id in (to.account, to.chat, to.thread):
        check_id(id)
    return to

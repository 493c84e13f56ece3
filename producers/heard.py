"""What a platform tells us, before and after it is understood."""

from __future__ import annotations

from typing import Any

import orjson

from shared.errors import Malformed
from shared.messages import Inbound
from shared.value import value


@value
class Event:
    """One thing that a platform told us, not yet understood."""

    ref: str  # the platform's own id of it, for the record
    fields: dict[str, Any]
    chat: str = ""  # events of one chat are settled in the order in which they came
    raw: bytes | None = None  # as it came; None: the fields say it all
    broken: str = ""  # why it cannot be understood, where that is known before anybody looks at the fields
    sender: str = ""  # which of several secrets it came with, for quotas; no secret itself
    account: str = ""  # which of our accounts it was told to, where the request says so and the fields do not


@value
class Ignored:
    """Understood, and nothing to answer."""

    reason: str


@value
class Moved:
    """A chat got a new id, and the old one is gone for good: its conversations follow it."""

    chat: str
    to: str
    account: str = ""


@value
class Undelivered:
    """A message of ours that the platform took, and then could not bring to its reader."""

    receipt: str
    reason: str
    account: str = ""
    part: str | None = (
        None  # the outbox row that it was, where the platform says; None: perhaps another program sent it
    )
    key_digest: str = ""  # of that part's idempotency key; empty: an older version sent it
    closes_chat: bool = False  # nothing else would be brought there either


Heard = Inbound | Ignored | Moved | Undelivered


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; Malformed for anything else, however deep or odd."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("the body is not a JSON object")
    return fields

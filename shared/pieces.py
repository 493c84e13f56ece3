"""Several messages that a user sent as one: the photos of an album, and a text that was too long for one message. Platforms
deliver them one by one. Receivers and workers know by these rules which belong together.
"""

from __future__ import annotations

from shared.busy import same_speaker
from shared.messages import Inbound, Kind
from shared.platforms import facts_of

APART_MS = 3000  # pieces of one text are sent at once; platforms tell times in whole seconds
AT_MOST = 20  # pieces; a platform's albums have ten
_COMMAND = "/"


def may_go_on(said: Inbound) -> bool:
    """Whether more may follow that its user sent together with it."""
    return said.album is not None or is_cut(said)


def may_be_rest(said: Inbound) -> bool:
    """Whether it may be the rest of a text that a program of its user's cut."""
    return said.kind is Kind.MESSAGE and said.album is None and not said.media and not said.text.startswith(_COMMAND)


def belong_together(before: Inbound, after: Inbound) -> bool:
    """Whether two messages, one right behind the other, were sent as one."""
    if not same_speaker(before, after):
        return False
    if before.album is not None or after.album is not None:
        return before.album == after.album
    return is_cut(before) and may_be_rest(after) and are_near(said_at(before), said_at(after))


def are_near(before_ms: int, after_ms: int) -> bool:
    """Whether two pieces of a text may have been sent at once, by the times at which they were said."""
    return abs(after_ms - before_ms) <= APART_MS


def is_cut(said: Inbound) -> bool:
    """Whether the text is so long that its user's program may have sent the rest of it in a further message."""
    limit = facts_of(said.source.platform).cut_text
    if limit is None or 2 * len(said.text) < limit.units or said.media or said.kind is not Kind.MESSAGE:
        return False
    return limit.measure(said.text) >= limit.units


def said_at(inbound: Inbound) -> int:
    return inbound.sent_at if inbound.sent_at is not None else inbound.received_at

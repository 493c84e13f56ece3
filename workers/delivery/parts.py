"""What a reply becomes before it is committed: one outbox row for each message that its platform will show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shared.messages import Reply
from shared.platforms import facts_of
from shared.platforms.facts import Limit
from workers.delivery.split import split


def in_parts(platform: str, replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """The replies as they will be sent. Decided once, in the commit: what was sent of it is then known part by part."""
    limit = facts_of(platform).text_limit
    return tuple(replies) if limit is None else tuple(part for reply in replies for part in _parts(reply, limit))


def _parts(reply: Reply, limit: Limit) -> Iterator[Reply]:
    """Text first, then each file by itself. White space alone would be refused as empty, and says nothing."""
    if reply.text.strip():
        yield from map(Reply, split(reply.text, limit))
    for media in reply.media:
        yield Reply("", (media,))

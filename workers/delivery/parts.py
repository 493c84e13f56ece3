"""What a reply becomes before it is committed: one outbox row for each message that its platform will show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shared.messages import Reply
from shared.platforms import facts_of
from shared.platforms.facts import Facts, Limit
from workers.delivery.buttons import buttons_of
from workers.delivery.split import split
from workers.media.outgoing import refusal


def in_parts(platform: str, replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """The replies as they will be sent on a platform, or where they say. Decided once, in the commit: what was sent of
    them is then known part by part."""
    parts: list[Reply] = []
    for reply in replies:
        facts = facts_of(platform if reply.to is None else reply.to.platform)
        reply, limit = _sendable(reply, facts), facts.text_limit
        said = [*_parts(reply, limit)] if limit is not None else [reply]
        parts += _with_buttons(said, reply, facts) if reply.choices else said
    return tuple(parts)


def _sendable(reply: Reply, facts: Facts) -> Reply:
    """The reply with a line of text for each file that the platform does not take."""
    if not reply.media:
        return reply
    refused = {media: line for media in reply.media if (line := refusal(media, facts)) is not None}
    if not refused:
        return reply
    text = "\n".join(filter(None, (reply.text, *refused.values())))
    return replace(reply, text=text, media=tuple(media for media in reply.media if media not in refused))


def _with_buttons(parts: list[Reply], reply: Reply, facts: Facts) -> list[Reply]:
    """The parts of a question, of which the last text has its buttons."""
    last = max((n for n, part in enumerate(parts) if part.text), default=None)
    if last is None:
        return parts
    asked = replace(parts[last], choices=buttons_of(reply.choices, facts.buttons, parts[last].text))
    return [*parts[:last], asked, *parts[last + 1 :]]


def _parts(reply: Reply, limit: Limit) -> Iterator[Reply]:
    """Text first, then each file by itself. White space alone would be refused as empty, and says nothing.

    The first piece takes the place of the message that the reply edits, or of its draft; the others are new.
    """
    if reply.text.strip():
        first, *others = split(reply.text, limit)
        yield Reply(first, to=reply.to, edits=reply.edits, draft=reply.draft, shown=reply.shown)
        yield from (Reply(piece, to=reply.to) for piece in others)
    for media in reply.media:
        yield Reply("", (media,), to=reply.to)

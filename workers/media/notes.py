"""Lines that stand in a text for a file that cannot be had or sent."""

from __future__ import annotations

from shared.context.replay import breadcrumb
from shared.messages import Media


def note(media: Media, reason: str) -> str:
    """`[image: cat.png: too large (12 MB, at most 10 MB)]`, without the name where there is none."""
    crumb = breadcrumb(media)
    return f"{crumb.removesuffix(']')}: {reason}]" if media.name else f"{crumb.partition(':')[0]}: {reason}]"

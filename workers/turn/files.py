"""Between deciding and running: the files of the mail are fetched, so that the agent finds them."""

from __future__ import annotations

from dataclasses import replace

from shared.stages import stage
from workers.turn.attempt import Attempt


async def fetch_files(attempt: Attempt) -> Attempt:
    """The attempt with blobs for the files of its mail, and lines of text for those that could not be had. Nothing is
    committed here: after a crash they are fetched again."""
    fetcher = attempt.parts.media
    if fetcher is None or not attempt.inbound.media:
        return attempt
    with stage("fetch"):
        return replace(attempt, inbound=await fetcher.fetched(attempt.inbound))

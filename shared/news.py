"""Telling the producers of a deployment, its receivers and listeners, that something changed: through a channel of Redis.

Whoever is not listening at that moment needs no telling: it reads everything anew when it listens again.
"""

from __future__ import annotations

from enum import Enum

from shared import keys
from shared.errors import Unavailable
from shared.pipeline import Pipeline


class News(Enum):
    """What a producer may hear."""

    PAIRED = b"paired"  # somebody was let in by pairing, or is no longer
    RELOAD = b"reload"  # the settings are to be read again


async def tell_producers(pipe: Pipeline, news: News) -> int:
    """Say it, and return how many producers heard. Unavailable when the server does not answer where they listen.

    All servers are told: a producer may not know yet, or not any more, that one of them is drained.
    """
    heard = 0
    for server in pipe.servers.all:
        try:
            heard += int(await server.asked(server.client.publish(keys.NEWS, news.value)))
        except Unavailable:
            if server is pipe.servers.of_key(keys.NEWS):
                raise
    return heard

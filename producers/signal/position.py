"""The id of the last event that is in the spool, kept in Redis: whoever connects next asks the daemon for what came behind it.

Lost with Redis; then the daemon is asked for nothing old, as at the first start.
"""

from __future__ import annotations

from producers.signal.stream import is_event_id
from shared import keys, log
from shared.errors import Unavailable
from shared.pipeline import Pipeline
from shared.platforms.signal import NAME
from shared.redis_servers import kept_text

KEPT_SECONDS = 30 * 24 * 3600  # a daemon remembers 1,000 events: of those before a longer pause few are left


class LastEvent:
    """Of one account. A Redis that is away costs nothing but the id: events that come again end as duplicates."""

    def __init__(self, pipe: Pipeline, account: str) -> None:
        self._name = keys.position(NAME, account)
        self._servers = pipe.servers

    async def load(self) -> str | None:
        """None: no event is known, or what Redis holds is no id."""
        kept = await kept_text(self._servers, self._name)
        return kept.decode() if kept is not None and is_event_id(kept) else None

    async def save(self, id: str) -> None:
        server = self._servers.of_key(self._name)
        try:
            await server.asked(server.client.set(self._name, id, ex=KEPT_SECONDS))
        except Unavailable as error:
            log.get().warning("the id of the last event is not kept", platform=NAME, error=str(error))

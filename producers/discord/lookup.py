"""Questions to Discord's HTTP API that a message has to wait for. The gateway's connection is held meanwhile, and a question
without an answer holds up the messages behind it for some seconds only."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from shared import log
from shared.errors import RateLimited, Transient
from shared.platforms.discord import NAME
from shared.platforms.discord_api import DiscordApi, DiscordRefused

ASKING_SECONDS = 10.0  # for one question, with all its tries
FIRST_PAUSE = 0.2  # seconds before the second try; it doubles with each
SILENT_SECONDS = 60.0  # so long a question that was not answered is not asked again
REMEMBERED = 10_000  # unanswered questions


class Lookups:
    """Asks for what nobody told us."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._silent_until: dict[str, float] = {}  # by path, on the monotonic clock

    async def ask(self, path: str) -> dict[str, Any] | None:
        """What Discord says; empty where it refuses to say. None where it does not answer, or asks us to wait for too long:
        then the same question gets None for a minute, and is asked again after that. Denied when the token is no good."""
        if self._silent_until.get(path, 0.0) > time.monotonic():
            return None
        try:
            async with asyncio.timeout(ASKING_SECONDS):
                found = await self._answered(path)
        except DiscordRefused:
            found = {}
        except (Transient, TimeoutError) as error:
            log.get().warning("taken as unknown", platform=NAME, path=path, error=str(error) or "no answer")
            self._note_silence(path)
            return None
        self._silent_until.pop(path, None)
        return found

    async def _answered(self, path: str) -> dict[str, Any]:
        """Ask until there is an answer. Raises RateLimited where waiting would take longer than we may ask."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._api.ask(path)
            except RateLimited as error:
                wait = error.retry_after.total_seconds()
                if wait >= ASKING_SECONDS:
                    raise
            except Transient:
                wait, pause = pause, pause * 2
            await asyncio.sleep(wait)

    def _note_silence(self, path: str) -> None:
        now = time.monotonic()
        if len(self._silent_until) >= REMEMBERED:
            self._silent_until = {path: until for path, until in self._silent_until.items() if until > now}
        self._silent_until[path] = now + SILENT_SECONDS

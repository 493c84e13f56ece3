"""Which providers are to be left alone, as this process knows: by its own refusals, and by those of others."""

from __future__ import annotations

import asyncio
import random
import time

from shared import keys, log
from shared.background import survived
from shared.redis_servers import Servers
from shared.value import value

RETRY_SECONDS = 0.5  # between tries while Redis is away
LONGEST_SPREAD_SECONDS = 10.0


@value
class Cooldown:
    """Until when nobody asks, on this process's monotonic clock, and over how long those who waited come back."""

    until: float
    spread: float


class Cooldowns:
    """The cool-downs by account. Looking one up costs nothing while there is none."""

    def __init__(self) -> None:
        self._of: dict[str, Cooldown] = {}

    def begin(self, account: str, wait: float, base: float) -> None:
        """Nobody asks that account for so many seconds. `base`: how long the whole cool-down is."""
        until, known = time.monotonic() + wait, self._of.get(account)
        if known is None or until > known.until:
            self._of[account] = Cooldown(until, min(base, LONGEST_SPREAD_SECONDS))

    def wait(self, account: str) -> float | None:
        """How long one request is to wait: what is left, and a random time on top, so that not all come back at once. None: the
        account may be asked."""
        if not self._of or (known := self._of.get(account)) is None:
            return None
        left = known.until - time.monotonic()
        if left <= 0:
            del self._of[account]
            return None
        return left + random.uniform(0, known.spread)


async def hear_cooldowns(servers: Servers, cooldowns: Cooldowns) -> None:
    """Take over what other processes were told, until cancelled. What is said while Redis is away is not heard: a refusal says
    it again."""
    while True:
        try:
            async for said in servers.heard(keys.COOLDOWNS):
                _take_over(said, cooldowns)
        except Exception as error:
            survived("limits", "cool-downs not heard", error)
        await asyncio.sleep(RETRY_SECONDS)


def _take_over(said: bytes, cooldowns: Cooldowns) -> None:
    """Anybody may publish on the channel: what is not understood is logged and left."""
    try:
        account, wait_ms, base_ms = said.decode().split(" ")
        cooldowns.begin(account, int(wait_ms) / 1000, int(base_ms) / 1000)
    except ValueError:
        log.get().warning("cool-down not understood")

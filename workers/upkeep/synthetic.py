"""Sends a message of ours through the whole pipeline now and then; workers/delivery/synthetic.py notes how long it took."""

from __future__ import annotations

from shared.clock import now_ms
from shared.door import accept
from shared.pipeline import Pipeline
from shared.synthetic import synthetic_inbound, synthetic_key


class SyntheticMessages:
    """One message for each time slot, whoever and however many look. None is made up for slots that nobody was there for."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.synthetic.seconds
        self._pipe = pipe
        self._slot_ms = max(1, int(self.every_seconds * 1000))

    async def look(self) -> float:
        """Send the message of this slot, unless it was sent. Gives the seconds until the next slot."""
        now = now_ms()
        slot = now // self._slot_ms
        await accept(self._pipe, synthetic_inbound(slot, now), synthetic_key(slot))
        return ((slot + 1) * self._slot_ms - now) / 1000

"""Conversations that are over: each is looked at, once, for what is worth keeping in memory.

What is over by policy is queued in SQL, where sessions that were ended are already. From there a few at a time are sent to
their keys as mail, so that the key's own lease keeps turns and looking apart. However many end at once, and however long
nobody watched, no more than MEMORY__AT_ONCE leave per look; a key that is busy comes later.
"""

from __future__ import annotations

from datetime import UTC, datetime

from shared.clock import now_ms
from shared.context.reset import ResetPolicy
from shared.errors import Malformed
from shared.mail import TakeNotes, encode_mail
from shared.pipeline import Pipeline
from shared.session_key import SessionKey
from shared.store.memory import Quiet

PAGE = 200
PAGES_PER_LOOK = 20
BUSY_MS = 60_000  # a key that has work now is looked at again after this time
LOST_MS = 600_000  # mail that was sent and came to nothing is sent again after this time


class EndedConversations:
    """Sends conversations that are over to their keys, each until it was looked at. What was queued outlives this process."""

    def __init__(self, pipe: Pipeline) -> None:
        self.every_seconds = pipe.settings.memory.look_seconds
        self._pipe = pipe
        self._policies = pipe.settings.reset.policies()
        self._seen: dict[ResetPolicy, tuple[int, str]] = {}  # how far each policy's sessions have been gone through

    async def look(self) -> float:
        """Queue what is over by policy, and send a few of those that are queued."""
        if self._pipe.settings.memory.enabled:
            for policy in self._policies.ending():
                await self._queue(policy)
            await self._send()
        return self.every_seconds

    async def _queue(self, policy: ResetPolicy) -> None:
        """Queue the sessions that are over by a policy, from where the last look ended."""
        horizon = policy.horizon(datetime.now(UTC), self._pipe.settings.zone)
        assert horizon is not None
        memory, before = self._pipe.store.memory, int(horizon.timestamp() * 1000)
        for _ in range(PAGES_PER_LOOK):
            quiet = await memory.quiet(self._seen.get(policy, (0, "")), before, PAGE)
            if theirs := [session for session in quiet if self._policy(session) == policy]:
                await memory.queue(theirs)
            if quiet:
                self._seen[policy] = (quiet[-1].updated_at, quiet[-1].id)
            if len(quiet) < PAGE:
                return

    def _policy(self, session: Quiet) -> ResetPolicy | None:
        try:
            return self._policies.of(SessionKey.parse(session.session_key).source)
        except Malformed:
            return None

    async def _send(self) -> None:
        config, memory, lane = self._pipe.settings.memory, self._pipe.store.memory, self._pipe.turns
        now = now_ms()
        due = await memory.due(now - int(config.after_seconds * 1000), PAGE)
        left = config.at_once
        for one, busy in zip(due, await lane.awake([one.session_key for one in due]), strict=True):
            if not left:
                return
            if await memory.put_off(one, now + (BUSY_MS if busy else LOST_MS)) and not busy:
                await lane.put(one.session_key, 0, encode_mail(TakeNotes(one.session_id)))
                left -= 1

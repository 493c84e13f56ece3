"""Shows an answer while it is being written to somebody who waits for it: see shared/live_text.py.

Only a message that says so is shown; any other costs nothing. One record is on its way at a time, and what is said meanwhile
travels in the next one. A Redis that is away, as any other error here, costs the live text, never the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from shared import keys
from shared.agent.events import Delta, Event, Restarted, Row, Thought
from shared.agent.turn import Result
from shared.background import survived
from shared.context.marks import USAGE
from shared.errors import Unavailable
from shared.failpoints import reach
from shared.live_text import LiveRecord, SaidText, SaidThought, TokensUsed, encode_live
from shared.redis_servers import RedisServer
from workers.turn.attempt import Attempt

LAST_SECONDS = 1.0  # that a commit waits for the last record to leave


class LiveText:
    """The live text of one attempt. Close it."""

    def __init__(self, servers: Sequence[RedisServer], channel: str, attempt: int) -> None:
        self._servers = servers  # several while the key leaves one that is drained: the listener may be at either
        self._channel = channel
        self._attempt = attempt
        self._row = self._at = 0
        self._unsent: list[SaidText | SaidThought] = []
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, attempt: Attempt) -> LiveText | None:
        """None: nobody waits for what this attempt says."""
        inbound = attempt.mail.inbound
        if inbound.terms is None or not inbound.terms.is_watched:
            return None
        return cls(attempt.parts.pipe.servers.may_have(attempt.key), keys.live_text(inbound.id), attempt.number)

    def take(self, event: Event) -> None:
        """Show what the event says, soon."""
        match event:
            case Delta(text) if text:
                self._unsent.append(SaidText(self._row, self._at, text))
                self._at += len(text)
            case Thought(text) if text:
                self._unsent.append(SaidThought(text))
            case Row(entry) if entry.role == "assistant":
                self._row, self._at = self._row + 1, 0
            case Restarted():  # what was shown cannot be taken back: the new text follows it as another row's would
                self._row, self._at = self._row + 1, 0
        if self._unsent and self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def finish(self, result: Result) -> None:
        """Show the rest, and what it has used. The commit is next, so this takes a moment at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                if self._sending is not None:
                    await asyncio.wait({self._sending})
                await self._publish(LiveRecord(self._attempt, tuple(self._unsent), _used(result), is_last=True))

    def close(self) -> None:
        """Show nothing more."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        try:
            while self._unsent:
                said, self._unsent = _joined(self._unsent), []
                await self._publish(LiveRecord(self._attempt, said))
        finally:
            self._sending = None

    async def _publish(self, record: LiveRecord) -> None:
        try:
            reach("stream.before_write")
            for server in self._servers:
                with contextlib.suppress(
                    Unavailable, TypeError
                ):  # TypeError: half a surrogate pair, which the commit repairs
                    await server.asked(server.client.publish(self._channel, encode_live(record)))
            reach("stream.after_write")
        except Exception as error:
            survived("stream", "live text not shown", error, channel=self._channel)


def _joined(said: list[SaidText | SaidThought]) -> list[SaidText | SaidThought]:
    """The same with neighbouring texts of one row as one."""
    joined: list[SaidText | SaidThought] = []
    for piece in said:
        last = joined[-1] if joined else None
        if isinstance(piece, SaidText) and isinstance(last, SaidText) and piece.row == last.row:
            joined[-1] = SaidText(last.row, last.at, last.text + piece.text)
        else:
            joined.append(piece)
    return joined


def _used(result: Result) -> TokensUsed | None:
    """None: no model was asked, or nobody counted."""
    counted = [usage for entry in result.entries if isinstance(usage := entry.data.get(USAGE), Mapping)]
    counted += result.spent
    if not counted:
        return None
    return TokensUsed(
        sum(_count(usage, "input") for usage in counted), sum(_count(usage, "output") for usage in counted)
    )


def _count(usage: Mapping[str, Any], name: str) -> int:
    """An agent may say anything; what is no count is none."""
    found = usage.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else 0

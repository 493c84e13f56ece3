"""Normalise → admit → settle: the same for every event of every platform, whether a request or a connection brought it.

An event is settled when it need not come again: its message was accepted, it is not for us, or it is recorded as something
that cannot be understood. Until then the platform, or the spool of a connection that never repeats itself, must keep it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

import orjson

from producers.access import Verdict, judge
from producers.heard import Event, Heard, Moved
from shared import log, metrics
from shared.clock import now_ms
from shared.door import Acceptance, accept
from shared.errors import MailboxFull, Malformed, Unavailable
from shared.failpoints import reach
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.platforms.settings import ChatSettings
from shared.store.dead import FULL
from shared.store.following import follow_chat
from shared.value import value

FULL_NOTICE = (
    "Too many messages are waiting here. Some have been set aside for a person to look at; please wait a little."
)


@value
class Left:
    """Not for us, or from somebody who may not talk to us."""

    reason: str


@value
class Recorded:
    """Cannot be understood: kept as a dead letter, because sent again it would be no better."""

    reason: str


Settled = Acceptance | Left | Recorded


class Understanding(Protocol):
    """What a platform makes of its events."""

    name: str  # the platform

    def normalise(self, event: Event, received_at: int) -> Heard:
        """What the event is to us. Malformed where something in it is of the wrong kind. Pure."""

    async def known_before(self, inbound: Inbound, event: Event) -> bool:
        """Whether the message was accepted under another id than its own, which the door would not notice."""
        return False


class Settler:
    """Settles the events of one platform's account."""

    def __init__(
        self, pipe: Pipeline, platform: Understanding, *, sets_aside_when_full: bool, records_malformed: bool = True
    ) -> None:
        block = pipe.settings.platform(platform.name)
        self._pipe = pipe
        self._platform = platform
        self._judged_by = block if isinstance(block, ChatSettings) else None  # None: whoever sends was given a key
        self._sets_aside_when_full = sets_aside_when_full
        self._records_malformed = records_malformed
        assert self._judged_by is not None or PLATFORMS[platform.name].trusts_sender

    async def settle(self, event: Event) -> Settled:
        """Settle an event: when this returns, it need not come again. Raises Unavailable, and MailboxFull if so made."""
        try:
            if event.broken:
                raise Malformed(event.broken)
            heard = self._platform.normalise(event, now_ms())
            if isinstance(heard, Inbound):
                return await self._admit(heard, event)
        except Malformed as error:
            if not self._records_malformed:
                raise
            raw = event.raw if event.raw is not None else orjson.dumps(event.fields)
            return await self.record(event.ref, raw, str(error))
        if isinstance(heard, Moved):
            return await self._follow(heard)
        log.get().debug("event ignored", platform=self._platform.name, ref=event.ref[:40], reason=heard.reason)
        return Left(heard.reason)

    async def settle_all(self, events: Sequence[Event], settled: set[str]) -> None:
        """Settle what is not among `settled` yet and add it there, or raise. Chats go side by side; within one, an event
        waits for those before it."""
        chats: dict[str, list[Event]] = {}
        for event in events:
            if event.ref not in settled:
                chats.setdefault(event.chat, []).append(event)
        outcomes = await asyncio.gather(
            *(self._in_order(chats[chat], settled) for chat in chats), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def record(self, ref: str, payload: bytes, reason: str) -> Recorded:
        """Keep what cannot be understood as a dead letter, once."""
        text = payload.decode(errors="replace")
        await self._pipe.store.dead.set_aside("request", ref[:256], None, "malformed", reason, text)
        metrics.REFUSED.labels("malformed").inc()
        log.get().warning("malformed: recorded", platform=self._platform.name, ref=ref[:40], reason=reason)
        return Recorded(reason)

    async def _in_order(self, events: Sequence[Event], settled: set[str]) -> None:
        for event in events:
            await self.settle(event)
            settled.add(event.ref)

    async def _admit(self, inbound: Inbound, event: Event) -> Settled:
        if self._judged_by is not None:
            verdict = judge(inbound, self._judged_by, self._pipe.settings)
            if verdict is not Verdict.ADMITTED:
                return self._turn_away(inbound, verdict)
            if await self._platform.known_before(inbound, event):
                metrics.DEDUP_HIT.inc()
                return Left("known before")
        try:
            return await accept(self._pipe, inbound)
        except MailboxFull as error:
            if not self._sets_aside_when_full:
                raise
            return await self._refuse(inbound, str(error))

    def _turn_away(self, inbound: Inbound, verdict: Verdict) -> Left:
        metrics.REFUSED.labels(verdict.value).inc()
        if verdict is Verdict.STRANGER:  # with the id that an operator would put on the list
            log.get().warning("stranger turned away", platform=self._platform.name, user=inbound.source.user)
        return Left(verdict.value)

    async def _refuse(self, inbound: Inbound, key: str) -> Left:
        """Too much waits in this chat, and the message cannot come again later: it becomes a dead letter, whole, and the
        chat is told."""
        reach("accept.before_refusal")
        told = await self._pipe.store.dead.refuse(inbound, key, FULL_NOTICE)
        reach("accept.after_refusal")
        metrics.DEAD_LETTER.labels(FULL).inc()
        log.get().error("mailbox full: set aside", key=key)
        if told is not None:
            with contextlib.suppress(Unavailable):  # the housekeeper finds the part when Redis is back
                await self._pipe.deliveries.put(told.destination, told.part_id, str(told.part_id).encode())
        return Left(FULL)

    async def _follow(self, moved: Moved) -> Left:
        name = self._platform.name
        count = await follow_chat(self._pipe.store.database, name, moved.account, moved.chat, moved.to)
        about = {"platform": name, "chat": moved.chat, "to": moved.to, "conversations": count}
        log.get().warning("a group moved to a new id: settings that name the old one need it", **about)
        return Left("moved")

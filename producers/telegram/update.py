"""One update, however it came: normalise, judge, accept."""

from __future__ import annotations

from typing import Any

import orjson

from producers.access import Verdict, judge
from producers.telegram.normalise import PLATFORM, Bot, Ignored, Migrated, normalise
from shared import log, metrics
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.errors import Malformed
from shared.mail import decode_inbound
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.store.following import follow_chat

_STARTED_MS = now_ms()
_CLOCKS_MS = 60_000  # that Telegram's clock and ours may differ


async def take_update(pipe: Pipeline, bot: Bot, update: dict[str, Any]) -> None:
    """Settle an update: when this returns, Telegram need not send it again. Raises MailboxFull, and Unavailable."""
    try:
        found = normalise(update, bot, now_ms())
        if isinstance(found, Inbound):
            await _admit(pipe, found, str(update["update_id"]))
    except Malformed as error:
        await set_aside(pipe, str(update.get("update_id")), orjson.dumps(update), str(error))
        return
    if isinstance(found, Migrated):
        moved = await follow_chat(pipe.store.database, PLATFORM, bot.account, found.chat, found.to)
        about = {"chat": found.chat, "to": found.to, "conversations": moved}
        log.get().warning(
            "a group moved to a new id: settings that name the old one need it", platform=PLATFORM, **about
        )
    elif isinstance(found, Ignored):
        log.get().debug("update ignored", platform=PLATFORM, update=update["update_id"], reason=found.reason)


async def set_aside(pipe: Pipeline, ref: str, payload: bytes, reason: str) -> None:
    """Record what cannot be understood: sent again it would be no better, and would hold back its chat."""
    await pipe.store.dead.set_aside("request", ref[:256], None, "malformed", reason, payload.decode(errors="replace"))
    metrics.REFUSED.labels("malformed").inc()
    log.get().warning("malformed update: recorded", platform=PLATFORM, update=ref[:40], reason=reason)


async def _admit(pipe: Pipeline, inbound: Inbound, update_id: str) -> None:
    verdict = judge(inbound, pipe.settings.telegram, pipe.settings)
    if verdict is Verdict.ADMITTED:
        if await _known_by_update(pipe, inbound, update_id):
            metrics.DEDUP_HIT.inc()
        else:
            await accept(pipe, inbound)
        return
    metrics.REFUSED.labels(verdict.value).inc()
    if verdict is Verdict.STRANGER:  # with the id that an operator would put on the list
        log.get().warning("stranger turned away", platform=PLATFORM, user=inbound.source.user)


async def _known_by_update(pipe: Pipeline, inbound: Inbound, update_id: str) -> bool:
    """Whether a version of Keyturn that knew messages by their update's id has accepted this one: Telegram brings the last
    batch again after an upgrade. Only what was said before this process began is looked up."""
    if inbound.sent_at is None or inbound.sent_at > _STARTED_MS + _CLOCKS_MS:
        return False
    row = await pipe.store.journal.find(message_id(PLATFORM, inbound.source.account, update_id))
    if row is None:
        return False
    try:
        known = decode_inbound(row["payload"])
    except Malformed:  # its words were deleted
        return False
    return (known.source.chat, known.message) == (inbound.source.chat, inbound.message)

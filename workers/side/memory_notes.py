"""Looks at a conversation that is over and asks the model what of it is worth keeping.

It comes as mail of the key (`TakeNotes`), so it runs under the key's lease and never beside a turn of it. Nothing here is in
the transcript. A crash leaves the mail: the next holder tries again, at most three times in all, and what was kept once is
not kept twice (shared/store/memory.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from shared import log, metrics
from shared.clock import now_ms
from shared.context.marks import SENDER_ID
from shared.context.memory import QUESTION, READ_LIMIT, SHOWN, asked, named, owner, worth_reading
from shared.errors import RateLimited, Unavailable
from shared.ids import fresh_id
from shared.owner import owner_of
from shared.session_key import SessionKey
from shared.store.memory import TRIES, Due, Memory, MemoryStanding
from shared.store.usage import Whose
from workers.side.questions import ask_aside

if TYPE_CHECKING:
    from workers.turn.parts import TurnParts

ROWS = 400  # of a conversation, from its end
AGAIN = timedelta(minutes=1)  # after the first failed try; it doubles
WITHOUT_BUDGET_MS = 3_600_000  # budgets are per day: no try is spent on one that is used up


async def look_back(session_id: str, key: str, parts: TurnParts) -> None:
    """Have the session looked at, if it is due and over. Repeating it changes nothing, and no error but an outage leaves
    it: the mail behind it is not to wait for what cannot be done."""
    try:
        await _look_back(session_id, SessionKey.parse(key), parts)
    except Unavailable:
        raise
    except Exception:
        log.get().exception("memory not flushed", key=key)


async def _look_back(session_id: str, key: SessionKey, parts: TurnParts) -> None:
    memory = parts.pipe.store.memory
    standing = await memory.standing(session_id)
    if standing is None:
        return
    if standing.ended_at is None and parts.lifetime.over_at(now_ms(), standing.updated_at, key.source) is None:
        await memory.close(session_id, standing, "live", standing.upto)  # it went on since
        return
    asks, turn_id = parts.side_model, f"flush_{fresh_id()}"
    rows = worth_reading(await memory.rows(session_id, standing.upto, ROWS)) if asks is not None else ()
    sender = next((row.data[SENDER_ID] for row in reversed(rows) if SENDER_ID in row.data), None)
    paid_by = owner_of(key, replace(key.source, user=sender)) or ""
    if asks is None or not rows:
        await _close(memory, session_id, standing, "nothing")
    elif parts.budgets is not None and await parts.budgets.refusal(paid_by) is not None:
        await memory.put_off(Due(session_id, str(key), standing.due_at), now_ms() + WITHOUT_BUDGET_MS)
    elif (attempt := await memory.begin(session_id, turn_id)) is None:
        await _close(memory, session_id, standing, "given_up")
    else:
        whose = owner(key, sender)
        known = [note.text for note in await memory.of(whose, SHOWN)]
        shown = asked(rows, known, READ_LIMIT >> (attempt - 1))  # what was too long once is halved
        try:
            async with asyncio.timeout(parts.pipe.settings.memory.timeout_seconds):
                payer = Whose(session_id, paid_by, key.agent)
                answer = await ask_aside(parts.pipe, asks, (shown,), QUESTION, payer, parts.budgets)
        except Exception as error:
            log.get().warning("memory not flushed", key=str(key), attempt=attempt, error=type(error).__name__)
            await _failed(memory, session_id, standing, turn_id, attempt, error)
            return
        if await memory.done(session_id, turn_id, standing, whose, named(answer.text)):
            metrics.FLUSHES.labels("done").inc()
            log.get().info("memory flushed", key=str(key), session=session_id)


async def _failed(
    memory: Memory, session_id: str, standing: MemoryStanding, turn_id: str, attempt: int, error: Exception
) -> None:
    if attempt >= TRIES:
        await _close(memory, session_id, standing, "given_up")
        return
    metrics.FLUSHES.labels("failed").inc()
    wait = max(AGAIN * 2 ** (attempt - 1), error.retry_after if isinstance(error, RateLimited) else AGAIN)
    await memory.failed(session_id, turn_id, now_ms() + int(wait.total_seconds() * 1000))


async def _close(memory: Memory, session_id: str, standing: MemoryStanding, state: str) -> None:
    metrics.FLUSHES.labels(state).inc()
    await memory.close(session_id, standing, state, standing.message_count)

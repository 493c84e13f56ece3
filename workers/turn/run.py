"""Step 7: the only place where an agent runs. Its deadline is the agent's own (`Punctual`, workers/agents/contract.py)."""

from __future__ import annotations

import asyncio

from shared import metrics
from shared.agent.turn import Result
from shared.errors import Stopped
from shared.stages import stage
from workers.turn.prepare import Prepared


async def run(prepared: Prepared) -> Result:
    """Run the agent. Raises what the agent raises, and Stopped if the user asked for it meanwhile, in whatever process.

    A crash leaves the mail and counts the attempt.
    """
    attempt, task = prepared.attempt, asyncio.current_task()
    lease, parts = attempt.lease, attempt.parts
    assert task is not None  # coroutines run in tasks
    if attempt.number > 1:
        metrics.REDELIVERED.inc()
    agent = parts.isolated_agent if attempt.isolated else parts.agent
    lease.turn_begins(attempt.mail.inbound.received_at, task.cancel)
    try:
        with stage("agent"):
            result = await agent.run(prepared.turn)
    except asyncio.CancelledError:
        if lease.cut_short and not task.uncancel() and not lease.lost:  # /stop alone has cancelled the task
            raise Stopped from None
        raise
    finally:
        lease.turn_ends()
    if lease.cut_short:
        task.uncancel()  # /stop came when the agent had its answer ready: the answer is kept
    return result

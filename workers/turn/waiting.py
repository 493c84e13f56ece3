"""What a turn has waited for before it began. More workers shorten only the first of the three."""

from __future__ import annotations

from shared.ids import made_at
from shared.metrics import WAITED
from shared.tracing import annotate
from workers.turn.attempt import Attempt


def observe_wait(attempt: Attempt, turns: int) -> None:
    """Count the wait of an attempt that begins; `turns` were committed before it under the same lease.

    A wake's id says when it was queued. Before that a message waits for its next attempt, where one has failed, or for its own
    conversation, where that has committed something since the message came. Otherwise it was on its way through the door.
    """
    free_ms = attempt.started_at
    if not turns and (woken_ms := made_at(attempt.lease.wake.id)) is not None:
        free_ms = min(woken_ms, free_ms)
        WAITED["worker"].observe((attempt.started_at - free_ms) / 1000)
        annotate(wait_worker_ms=attempt.started_at - free_ms)
    annotate(attempt.key, attempt=attempt.number)
    received_ms = attempt.mail.inbound.received_at
    if attempt.number > 1:
        WAITED["delay"].observe(max(0, free_ms - received_ms) / 1000)
    elif attempt.session.updated_at > received_ms:
        WAITED["key"].observe(max(0, free_ms - received_ms) / 1000)
        annotate(wait_key_ms=max(0, free_ms - received_ms))

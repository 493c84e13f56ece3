"""Why a conversation waits, in words, and what makes it go on."""

from __future__ import annotations

from shared.reading.keys import KeyPhase, KeyState


def waiting_reason(state: KeyState, pending: int, workers_alive: int | None) -> str:
    """One or two sentences. `pending` is what the journal says has not ended; `workers_alive` is None where that is not known."""
    if state.state is KeyPhase.IDLE:
        if not pending:
            return "Nothing waits here."
        return f"The journal has {_messages(pending)} that Redis does not know of. A housekeeper wakes the key."
    if state.state is KeyPhase.PAUSED:
        count = max(state.waiting, pending)
        wait = "waits" if count == 1 else "wait"
        return f"It is paused ({state.paused}). {_messages(count)} {wait} until somebody resumes it."
    left = (state.left_ms or 0) / 1000
    if state.state is KeyPhase.DELAYED:
        goes_on = f"in {max(0.0, left):.0f} s"
        if not state.attempts:
            return f"It was asked to wait: a limit is reached, or what it needs is away. No attempt failed. It goes on {goes_on}."
        return f"Attempt {state.attempts} failed. The next one begins {goes_on}."
    if state.state is KeyPhase.AWAKE:
        if workers_alive == 0:
            return "It is ready, and no worker is alive: start `keyturn work`."
        return "It is ready and waits for a free worker. If this lasts, add workers."
    if left < 0:
        return f"Its worker has not been heard of: the lease ran out {-left:.0f} s ago. A housekeeper wakes the key."
    behind = max(0, max(state.waiting, pending) - 1)
    more = f" {_messages(behind)} wait behind it, in order." if behind > 1 else ""
    more = " 1 message waits behind it." if behind == 1 else more
    return f"A worker runs its turn, attempt {max(1, state.attempts)}.{more}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"

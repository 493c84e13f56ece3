"""How a turn is committed that was ended before its time: by /stop, or by a new message in mode `interrupt` or `rollback`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.agent.turn import Result
from shared.context import marks
from shared.messages import Entry, Reply, State
from shared.store.change import NO_CHANGE, Ending
from workers.turn.attempt import Attempt
from workers.turn.busy.watch import Cut
from workers.turn.conclude import effects_of, end_mail, end_unfinished, with_usage
from workers.turn.outcome import Conclusion
from workers.turn.run import knowing_steps

# One of these stands where the answer would: two user rows must not meet.
STOPPED = "(The user stopped this before it was finished.)"
INTERRUPTED = "(The user sent a new message before this was finished.)"
ROLLED_BACK = "(The user sent a new message before this was finished. What was said and found out here is dropped.)"
TAKEN_BACK = "(Your new message takes the place of this.)"  # what the chat reads in the place of a draft


def cut_short(attempt: Attempt, kept: Result) -> Conclusion:
    """End the mail without an answer. What the agent had finished stays in the conversation, unless the turn is rolled back, or was to
    take the place of earlier rows, which stay then: of such a turn stays what people said, and that its calls had effects. What it
    used is counted."""
    attempt = attempt.with_taken(kept.took)
    cut = attempt.busy.cut if attempt.busy is not None and not attempt.lease.cut_short else None
    change = with_usage(attempt, kept, NO_CHANGE)
    replaces = attempt.again is not None and attempt.again.change != NO_CHANGE  # /retry, or an edited message
    if cut is Cut.ROLLED_BACK:
        replies: Sequence[Reply] = [replace(reply, text=TAKEN_BACK) for reply in kept.replies[:1]]
        rows = [row for row in kept.entries if row.role == "user"]  # what people said while it ran
        rows.append(Entry("assistant", ROLLED_BACK + effects_of(attempt)))
    elif replaces:
        replies = kept.replies
        rows = [row for row in kept.entries if row.role == "user"]
        rows.append(Entry("assistant", (INTERRUPTED if cut is not None else STOPPED) + effects_of(attempt)))
    else:
        replies = kept.replies
        rows = [*(attempt.steps.marked(kept.entries) if attempt.steps is not None else kept.entries)]
        rows.append(Entry("assistant", INTERRUPTED if cut is not None else STOPPED))
    ending = Ending(State.SUPERSEDED, cut.value if cut is not None else "stopped")
    said = (marks.user_row(attempt.inbound), *rows)
    if replaces and len(rows) == 1 and not effects_of(attempt):  # nothing happened
        said = ()
    return end_mail(attempt, ending, replies, said, change)


async def stopped_before(attempt: Attempt) -> Conclusion:
    """End mail that /stop dropped before this attempt. Nothing is said: /stop has its own answer."""
    return end_unfinished(await knowing_steps(attempt), Ending(State.SUPERSEDED, "stopped"), STOPPED)

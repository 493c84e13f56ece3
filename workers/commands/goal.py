"""/goal: what the conversation is to reach. It is told to the model with every turn until it is done or cleared."""

from __future__ import annotations

from dataclasses import replace

from shared.context.runtime import GOAL, OBJECTIVE_LIMIT, OLD_GOAL, Goal, Status, goal_of
from shared.store.change import Change
from workers.commands import Command, CommandAnswer, CommandCall, register

_ENDS: dict[str, Status] = {"done": "completed", "completed": "completed", "blocked": "blocked", "resume": "active"}


async def goal(call: CommandCall) -> CommandAnswer:
    known, word = goal_of(call.session.facts), call.args.lower()
    if word in ("", *_ENDS, "clear") and known is None:
        return CommandAnswer("This conversation has no goal. /goal <text> sets one.")
    if not word:
        assert known is not None
        return CommandAnswer(f"Goal ({known.status}): {known.objective}")
    if word == "clear":
        return CommandAnswer("The goal is cleared.", _kept(call, None))
    if word in _ENDS:
        assert known is not None
        return CommandAnswer(f"The goal is {_ENDS[word]}.", _kept(call, replace(known, status=_ENDS[word])))
    return CommandAnswer(f"The goal of this conversation: {call.args}", _kept(call, Goal(call.args)))


def _kept(call: CommandCall, goal: Goal | None) -> Change:
    value = goal.encode() if goal is not None else None
    return Change(facts={(call.session.id, GOAL): value, (call.session.id, OLD_GOAL): None})


register(
    Command(
        "goal",
        "show, set or clear what this conversation is to reach",
        goal,
        args="[text|done|blocked|clear]",
        limit=OBJECTIVE_LIMIT,
    )
)

"""Going on towards a goal where a turn reached its limit before its model could hand over."""

from __future__ import annotations

import orjson

from shared.agent.events import Call
from shared.agent.turn import Turn
from workers.agents.tools.toolbox import Toolbox

GO_ON = "goal_go_on"  # the tool of Keyturn's own with which a model does the same (workers/side/own_tools.py)
GOES_ON = "You go on when you have answered"  # how its result begins where it worked
HANDOVER = (
    "The step before this one reached the limit of a turn, and nobody handed over: look at what is done, and go on."
)


async def goes_on(turn: Turn, tools: Toolbox) -> bool:
    """Let the conversation go on by itself after this turn, if it has a goal and has not gone on too often. That is a step of the
    run: an attempt that is taken up again does not do it twice."""
    call = Call("at_limit", GO_ON, orjson.dumps({"handover": HANDOVER}).decode())
    if not tools.has(GO_ON) or tools.needs_person(call):
        return False
    return (await tools.outcome(call, turn)).text.startswith(GOES_ON)

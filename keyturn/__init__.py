"""What people touch: the public names for authors of agents, the command line, the importers."""

from shared.agent.events import (
    Ask,
    Began,
    Call,
    Delta,
    Done,
    Ended,
    Event,
    Notice,
    Restarted,
    Row,
    Spent,
    Thought,
    Took,
)
from shared.agent.inbox import Inbox
from shared.agent.steps import Effect, How, NotRun, Stepped, Steps
from shared.agent.turn import Result, Said, Speaker, Turn
from shared.errors import AgentFault, Outage, Permanent, RateLimited, Transient
from shared.messages import Entry, Inbound, Media, Reply, Source
from workers.agents.capabilities import Answer, Asks, KnowsItsWindow, WantsContext
from workers.agents.contract import Agent, Answers
from workers.agents.tools.tool import CallContext, Tool, tool

__all__ = [
    "Agent",
    "AgentFault",
    "Answer",
    "Answers",
    "Ask",
    "Asks",
    "Began",
    "Call",
    "CallContext",
    "Delta",
    "Done",
    "Effect",
    "Ended",
    "Entry",
    "Event",
    "How",
    "Inbound",
    "Inbox",
    "KnowsItsWindow",
    "Media",
    "NotRun",
    "Notice",
    "Outage",
    "Permanent",
    "RateLimited",
    "Reply",
    "Restarted",
    "Result",
    "Row",
    "Said",
    "Source",
    "Speaker",
    "Spent",
    "Stepped",
    "Steps",
    "Thought",
    "Took",
    "Tool",
    "Transient",
    "Turn",
    "WantsContext",
    "tool",
]

"""What people touch: the public names for authors of agents, the command line, the importers."""

from shared.agent.events import Ask, Began, Call, Delta, Done, Ended, Event, Notice, Row, Spent, Thought, Took
from shared.agent.inbox import Inbox
from shared.agent.steps import Effect, How, Stepped, Steps
from shared.agent.turn import Result, Said, Speaker, Turn
from shared.errors import Outage, Permanent, RateLimited, Transient
from shared.messages import Entry, Inbound, Media, Reply, Source

__all__ = [
    "Ask",
    "Began",
    "Call",
    "Delta",
    "Done",
    "Effect",
    "Ended",
    "Entry",
    "Event",
    "How",
    "Inbound",
    "Inbox",
    "Media",
    "Notice",
    "Outage",
    "Permanent",
    "RateLimited",
    "Reply",
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
    "Transient",
    "Turn",
]

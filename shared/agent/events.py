"""What an agent yields while its turn runs. The last event is `Done` or `Ask`.

| event | meaning | kept |
|---|---|---|
| `Delta` | a piece of the answer's text, as it comes | only if the turn is cut short: as the partial text since the last `Row` |
| `Thought` | a piece of the model's reasoning, as it comes | no; a `Row` carries what should be kept of it |
| `Began`, `Ended` | a tool call runs; it has a result | no; a call that began and did not end is kept as interrupted |
| `Notice` | something that people should read and the model should not | no; the chat reads it before the replies |
| `Row` | one finished row of the transcript | yes, in the order of the events |
| `Took` | mail from `turn.inbox` that a request showed to the model | it ends as merged with this turn |
| `Spent` | the usage of a request that no row carries: one that failed, or was cut short | yes, also if the turn is cut short |
| `Ask` | a question to a person: the turn ends here, and another takes it up with the answer | yes |
| `Done` | the turn is over, and the chat is told the replies | yes |

An agent that yields no `Row` has the text of its replies kept as its rows, so for a plain answer one `Done` is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from shared.messages import Entry, Reply
from shared.value import value


@value
class Call:
    """A tool call as a model asked for it. `id` is the model's: it is unique among the calls of one row only."""

    id: str
    name: str
    arguments: str = "{}"  # JSON as text, as the model wrote it


@value
class Delta:
    text: str


@value
class Thought:
    text: str


@value
class Began:
    call: Call


@value
class Ended:
    """The call has a result: `text` is what the model will read, `ok` says whether the tool did what it was asked."""

    call: Call
    ok: bool
    text: str


@value
class Notice:
    text: str


@value
class Row:
    entry: Entry


@value
class Took:
    inbound_ids: tuple[str, ...]


@value
class Spent:
    """`usage` has the form of a row's `usage` mark: see workers/agents/llm. Put it here or on a row, not in both places."""

    usage: Mapping[str, Any]


@value
class Ask:
    """A question that ends the turn. `id` finds its answer in `Turn.answers`; `call` is the tool call that waits for it."""

    id: str
    text: str
    choices: tuple[str, ...] = ()
    expires: timedelta | None = None
    call: Call | None = None


@value
class Done:
    """The end of the turn. No replies: the chat is told nothing."""

    replies: tuple[Reply, ...] = ()


Event = Delta | Thought | Began | Ended | Notice | Row | Took | Spent | Ask | Done

"""What an agent yields while its turn runs. The last event is `Done` or `Ask`.

| event | meaning | kept |
|---|---|---|
| `Delta` | a piece of the answer's text, as it comes | only if the turn is cut short: as the partial text since the last `Row` |
| `Thought` | a piece of the model's reasoning, as it comes | no; a `Row` carries what should be kept of it |
| `Restarted` | the answer begins again: the text since the last `Row` does not count | no |
| `Began`, `Ended` | a tool call runs; it has a result | no; a call that began and did not end is kept as interrupted |
| `Notice` | something that people should read and the model should not | no; the chat reads it before the replies |
| `Row` | one finished row of the transcript | yes, in the order of the events |
| `Took` | mail from `turn.inbox` that a request showed to the model | its words become a user's row here, and it ends as merged with this turn |
| `Spent` | the usage of a request that no row carries: one that failed, or was cut short | yes, also if the turn is cut short |
| `Ask` | a question to a person. The turn ends with one or several of them, and the answer takes it up | yes |
| `Done` | the turn is over, and the chat is told the replies | yes |

A turn is cut short when its user stops it. One that fails or is late is tried again, and keeps its steps (`Turn.steps`) only.
Of a turn that asks, only the steps and the questions are kept: rows that are no steps come again, or are lost.
What a turn that asks took ends with it. A turn that fails keeps of what it took what `Turn.steps` has a response to; the rest is
still mail.

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
    """More text of the answer. Shown while it is written; kept only as the partial text of a stopped turn."""

    text: str


@value
class Thought:
    """More of the model's reasoning. Shown where a place shows reasoning; not kept by itself."""

    text: str


@value
class Restarted:
    """The answer begins again, because whoever was giving it cannot finish. The text since the last `Row` does not count: places
    that showed it show the new text instead."""


@value
class Began:
    """A tool call has begun. Without `Ended` it counts as interrupted."""

    call: Call


@value
class Ended:
    """The call has a result: `text` is what the model will read, `ok` says whether the tool did what it was asked."""

    call: Call
    ok: bool
    text: str


@value
class Notice:
    """Something that people should read and the model should not: said in the chat before the replies."""

    text: str


@value
class Row:
    """A row of the transcript that is final. It is kept, also if the turn is stopped after it."""

    entry: Entry


@value
class Took:
    """Mail from the inbox that a request has shown to the model. It ends with this turn as merged. Yield it when the model
    has begun to answer that request: not before, because taken mail of a request that failed is still mail."""

    inbound_ids: tuple[str, ...]


@value
class Spent:
    """`usage` has the form of a row's `usage` mark: see workers/agents/llm.py. Put it here or on a row, not in both places."""

    usage: Mapping[str, Any]


@value
class Ask:
    """A question that ends the turn. `id` finds its answer in `Turn.answers`; `call` is the tool call that waits for it.

    With a call and choices it is an approval, answered by yes or no. With choices alone it is answered by one of them, and
    without choices by any words. Without `expires` it waits for 30 days.
    """

    id: str
    text: str
    choices: tuple[str, ...] = ()
    expires: timedelta | None = None
    call: Call | None = None


@value
class Done:
    """The end of the turn. No replies: the chat is told nothing."""

    replies: tuple[Reply, ...] = ()


Event = Delta | Thought | Restarted | Began | Ended | Notice | Row | Took | Spent | Ask | Done

"""An agent that is an async generator: it says its answer piece by piece, with a tool call before it.

Start it in this directory with `../../run up --agent streaming_agent:agent`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from keyturn import Began, Call, Delta, Done, Ended, Entry, Event, Reply, Row, Turn


async def agent(turn: Turn) -> AsyncIterator[Event]:
    """Count the words with a tool, then answer. What was yielded as a row stays, even if the user stops the turn."""
    said = turn.mail[-1].text
    call = Call("call_1", "count_words")
    yield Row(Entry("assistant", "", data={"tool_calls": [{"id": call.id, "name": call.name, "arguments": "{}"}]}))
    yield Began(call)
    counted = await turn.steps.call(call, lambda key: count_words(said))
    yield Ended(call, counted.ok, counted.text)
    yield Row(Entry("tool", counted.text, data={"tool_call_id": call.id, "name": call.name}))
    text = ""
    for piece in ("You said ", counted.text, " words."):
        text += piece
        yield Delta(piece)
    yield Row(Entry("assistant", text))
    yield Done((Reply(text),))


async def count_words(text: str) -> str:
    """A tool. It is given the words of the message, and its result is what a model would read."""
    return str(len(text.split()))

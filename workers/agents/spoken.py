"""What an agent outside of this process says, as events: text as it comes, or records in JSON (shared/agent/wire.py)."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator

import orjson

from shared.agent.events import Ask, Delta, Done, Event, Restarted, Row
from shared.agent.wire import decode_event
from shared.codec import storable
from shared.errors import AgentFault, Malformed
from shared.messages import Entry, Reply

CHUNK_BYTES = 2**16


class SpokenText:
    """An answer that is plain text. Blank space around it is left out."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._said: list[str] = []
        self._held = ""  # blank space, of which nobody knows yet whether more text follows

    def take(self, chunk: bytes) -> list[Event]:
        """The text that can be told by now."""
        text = self._held + storable(self._decode(chunk))
        text = text if self._said else text.lstrip()
        told = text.rstrip()
        self._held = text[len(told) :]
        if not told:
            return []
        self._said.append(told)
        return [Delta(told)]

    def end(self) -> list[Event]:
        """The rest, when all of it has come."""
        return [*self.take(b""), *answer_events("".join(self._said))]


class SpokenEvents:
    """Events that are told one by one. `Done` may be left out: then the answer is the text that no row has kept, or else
    the last row of the assistant."""

    def __init__(self) -> None:
        self._deltas: list[str] = []  # since the last row
        self._last_row = ""
        self.has_ended = False

    def take(self, record: bytes) -> Event:
        """The event in a record. AgentFault where it is none."""
        try:
            event = decode_event(orjson.loads(record))
        except (orjson.JSONDecodeError, Malformed) as error:
            raise AgentFault(f"the agent said something that is no event: {error!s:.200}") from None
        match event:
            case Delta(text):
                self._deltas.append(text)
            case Restarted():
                self._deltas.clear()
            case Row(entry):
                self._deltas.clear()
                self._last_row = entry.text if entry.role == "assistant" else self._last_row
            case Done() | Ask():
                self.has_ended = True
        return event

    def end(self) -> list[Event]:
        """The events that the agent left out."""
        if self.has_ended:
            return []
        if text := "".join(self._deltas).strip():
            return answer_events(text)
        return [Done((Reply(self._last_row),) if self._last_row else ())]


def answer_events(text: str) -> list[Event]:
    """One row of the assistant, and the same text for the chat. An empty answer says nothing."""
    return [Row(Entry("assistant", text)), Done((Reply(text),))] if text else [Done()]


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines in these bytes, without their ends. The last one need not have one; empty ones are left out."""
    rest = b""
    async for chunk in chunks:
        if b"\n" not in chunk:
            rest += chunk
            continue
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line := line.strip():
                yield line
    if rest := rest.strip():
        yield rest

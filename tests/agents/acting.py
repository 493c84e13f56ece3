"""An agent whose turns hang in every way that there is, or wait until they are let go. AGENT=tests.agents.acting:agent

| message | the turn |
|---|---|
| `coroutine PATH` | waits for ever |
| `stubborn PATH` | the same, and goes on whenever it is cancelled |
| `thread PATH` | waits for ever in a thread |
| `hold N PATH` | waits until N messages could join it and the file PATH is there, and takes them in; PATH.begun says that it runs |
| `order` | calls three tools: one that reads, a keyed one and one that writes. What they do is in the log of shop.py |
| `ask` | asks a person first, and then does the same, whatever they say |
| `expire` | the same, and the question is open for a moment only |
| anything else | answers at once |

A turn that hangs has written to PATH before. A turn that holds and lost its first worker waits for the file only: what came before
an attempt began cannot join it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from keyturn import Ask, Call, Delta, Done, Entry, Event, Reply, Took, Turn
from shared.agent.steps import Effect
from shared.context.marks import TOOL_CALLS
from tests.agents.shop import note

LOOK_SECONDS = 0.02
MOMENT = timedelta(seconds=1)


class ActingAgent:
    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        text = turn.mail[0].text
        word, _, rest = text.partition(" ")
        match word:
            case "coroutine":
                yield _begun(rest)
                await asyncio.Event().wait()
            case "stubborn":
                yield _begun(rest)
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        Path(rest).write_text("cancelled")
            case "thread":
                yield _begun(rest)
                await asyncio.to_thread(threading.Event().wait)
            case "hold":
                async for event in _hold(turn, rest):
                    yield event
            case "ask" | "expire" if not turn.answers:
                yield Ask("q", "May I?", ("yes", "no"), MOMENT if word == "expire" else None)
                return
            case _ if word == "order" or turn.answers:
                how = await _order(turn)
                yield Done((Reply(f"{turn.run}: {' '.join(how)}"),))
                return
        yield Done((Reply(f"done {text}"),))


def _begun(path: str) -> Event:
    Path(path).write_text("")
    return Delta("so far")


async def _order(turn: Turn) -> list[str]:
    """How each of the calls came by its outcome. After a crash all of them are asked for again."""
    how = []
    if not turn.rows:
        calls = [{"id": effect.value, "name": effect.value, "arguments": "{}"} for effect in Effect]
        await turn.steps.response(Entry("assistant", "", data={TOOL_CALLS: calls}))
    for effect in Effect:

        async def do(key: str, effect: Effect = effect) -> str:
            note(f"{turn.run}:{effect.value}:{key}")
            return "done"

        how.append((await turn.steps.call(Call(effect.value, effect.value), do, effect)).how.value)
    return how


async def _hold(turn: Turn, told: str) -> AsyncIterator[Event]:
    count, _, path = told.partition(" ")
    yield _begun(f"{path}.begun")
    wanted = int(count) if turn.attempt == 1 else 0
    while not Path(path).exists() or turn.inbox.waiting() < wanted:
        await asyncio.sleep(LOOK_SECONDS)
    while taken := await turn.inbox.take():
        yield Took(tuple(inbound.id for inbound in taken))


agent = ActingAgent()

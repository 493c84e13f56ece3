"""Steps of an isolated turn: the calls are carried out in its process, and the worker writes them down.

The process asks by a frame `{"step":{"id",…}}`, with one of these, and the worker answers with the same `id`:

| the process asks | the worker answers |
|---|---|
| `response`: an assistant row | `{"id"}` |
| `begin`: a call and its effect | `{"id","run":{"n","key"}}`: carry it out; or `{"id","stepped":{…}}`: its outcome |
| `end`: the place, the key and the outcome of a call | `{"id"}` |

Where the worker may not write any more, it ends the process. A process that dies leaves its calls as begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.agent.events import Call
from shared.agent.steps import BegunStep, Effect, How, LoggedSteps, StepLog, Stepped, Steps
from shared.codec import encode_json, from_fields
from shared.errors import AgentFault
from shared.messages import Entry
from workers.agents.remote_line import WorkerLine

SUBJECT = "step"


async def answered(asked: Mapping[str, Any], steps: Steps) -> bytes:
    """Write down what an isolated process asks for, and give the answer to send. AgentFault for what no process of ours
    sends."""
    assert isinstance(steps, LoggedSteps)  # the worker made the turn
    try:
        return encode_json({"id": asked["id"], **await _written(asked, steps.log)})
    except (KeyError, TypeError, ValueError) as error:
        raise AgentFault(f"the isolated process sent an unknown step: {type(error).__name__} {error!s:.80}") from None


async def _written(asked: Mapping[str, Any], log: StepLog) -> dict[str, Any]:
    match asked:
        case {"response": dict(row)}:
            await log.response(from_fields(Entry, row))
            return {}
        case {"begin": {"call": dict(call), "effect": str(effect)}}:
            begun = await log.begin(from_fields(Call, call), Effect(effect))
            return {"stepped": begun} if isinstance(begun, Stepped) else {"run": begun}
        case {"end": {"begun": dict(begun), "stepped": dict(stepped)}}:
            await log.end(from_fields(BegunStep, begun), _stepped(stepped))
            return {}
    raise KeyError(str(sorted(asked)))


class RemoteLog:
    """The log of the worker, as an isolated process writes to it."""

    def __init__(self, line: WorkerLine) -> None:
        self._line = line

    async def response(self, row: Entry) -> None:
        await self._line.ask(SUBJECT, {"response": row})

    async def begin(self, call: Call, effect: Effect) -> BegunStep | Stepped:
        answer = await self._line.ask(SUBJECT, {"begin": {"call": call, "effect": effect.value}})
        if "stepped" in answer:
            return _stepped(answer["stepped"])
        return from_fields(BegunStep, answer["run"])

    async def end(self, begun: BegunStep, stepped: Stepped) -> None:
        await self._line.ask(SUBJECT, {"end": {"begun": begun, "stepped": stepped}})


def _stepped(fields: dict[str, Any]) -> Stepped:
    return Stepped(str(fields["text"]), bool(fields["ok"]), How(fields["how"]))

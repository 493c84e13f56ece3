"""What a worker and an isolated process say to each other: frames of four bytes of length and a JSON record.

| from | record |
|---|---|
| the worker, first | the turn (shared/agent/wire.py) |
| the process | events as they happen (shared/agent/wire.py), and questions (workers/agents/remote_steps.py, remote_admission.py, remote_tools.py) |
| the worker | an answer to each question |
| the process, last | `{"end":{}}`: the agent has ended; or `{"failed":{"kind","text",…}}`: it raised |

Whoever hangs up has ended. A process that hangs up before `end` or `failed` has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson

from shared.agent.events import Event
from shared.agent.wire import decode_event
from shared.codec import encode_json
from shared.errors import AgentFault, HeldBack, Malformed, Outage, Permanent, RateLimited, Transient
from workers.raised_at import RaisedElsewhere, raised_at

HEADER_BYTES = 4
LIMIT_BYTES = 16 * 2**20  # of a frame that a process sends; turns are our own and may be longer
TEXT_CHARACTERS = 500
END = encode_json({"end": {}})


def framed(record: bytes) -> bytes:
    return len(record).to_bytes(HEADER_BYTES, "big") + record


async def read_frame(reader: asyncio.StreamReader) -> Any | None:
    """The next record of a process, parsed; None when it has hung up. AgentFault for what no process of ours sends."""
    try:
        size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
        if size > LIMIT_BYTES:
            raise too_long(size)
        return orjson.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except orjson.JSONDecodeError:
        raise AgentFault("the isolated process sent a frame that is no JSON") from None


def event_in(record: Any) -> Event:
    """The event in a frame's record; AgentFault where it is none that this version knows."""
    try:
        return decode_event(record)
    except Malformed as error:
        raise AgentFault(f"the isolated process sent an unknown frame: {error}") from None


def too_long(size: int) -> AgentFault:
    return AgentFault(f"the agent yielded an event of {size} bytes; isolated, {LIMIT_BYTES} are the most")


def encode_failure(error: Exception) -> bytes:
    """The record of what an agent raised, with all that the pipeline decides by."""
    text = str(error)[:TEXT_CHARACTERS]
    match error:
        case Permanent():
            about: dict[str, Any] = {"kind": "permanent", "text": text, "notice": error.notice}
        case Outage():
            kind = "rate_limited" if isinstance(error, RateLimited) else "outage"
            kind = "held_back" if isinstance(error, HeldBack) else kind
            about = {"kind": kind, "text": text, "provider": error.provider, "status": error.status}
            about["retry_after_s"] = error.retry_after.total_seconds()
        case AgentFault():
            about = {"kind": "fault", "text": text}
        case TimeoutError():
            about = {"kind": "timeout", "text": text}
        case _:
            name = type(error).__name__
            about = {"kind": "error", "text": f"{name}: {text}", "error": name, "at": raised_at(error)}
    return encode_json({"failed": about})


def decode_failure(about: Mapping[str, Any]) -> Exception:
    """The error that the pipeline decides on as it would on the agent's own."""
    text = str(about.get("text", ""))
    match about.get("kind"):
        case "permanent":
            return Permanent(text, about.get("notice"))
        case "held_back":
            return HeldBack(_wait(about), provider=str(about.get("provider", "")))
        case "rate_limited":
            return RateLimited(_wait(about), provider=str(about.get("provider", "")), status=about.get("status"))
        case "outage":
            provider = str(about.get("provider", ""))
            return Outage(text, retry_after=_wait(about), provider=provider, status=about.get("status"))
        case "fault":
            return AgentFault(text)
        case "timeout":
            return TimeoutError(text)
        case "error" if "error" in about:  # a process of an older version does not say it apart
            return RaisedElsewhere(text, str(about["error"]), about.get("at"))
    return Transient(text)


def _wait(about: Mapping[str, Any]) -> timedelta:
    return timedelta(seconds=about.get("retry_after_s", 0))

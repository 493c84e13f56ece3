"""Turns and events as JSON: for the process that runs a turn apart. Both sides have the same version.

An event is an object with one field, named after its kind: {"delta": "Hel"}, {"row": {…}}, {"done": [{"text": "Hello"}]}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

import orjson

from shared.agent.events import (
    Ask,
    Began,
    Call,
    Delta,
    Done,
    Ended,
    Event,
    Notice,
    Row,
    Spent,
    Thought,
    Took,
)
from shared.agent.turn import Result, Said, Speaker, Turn
from shared.codec import decode_address, decode_media, decode_source, encode_json
from shared.errors import Malformed
from shared.messages import Entry, Inbound, Reply

_LOCAL = ("steps", "inbox")  # they act: whoever reads the turn gets its own
_CARRIED = tuple(field.name for field in fields(Turn) if field.name not in _LOCAL)


def encode_turn(turn: Turn) -> bytes:
    """The turn without its steps and its inbox. Malformed where something in it has no form in JSON."""
    speaker = turn.speaker
    return encode_json(
        {
            **{name: getattr(turn, name) for name in _CARRIED},
            "history": tuple(turn.history),
            "speaker": {
                "owner": speaker.owner,
                "rights": sorted(speaker.rights),
                "credentials": speaker.credentials,
                "shown_as": speaker.shown_as,
            },
            "deadline": turn.deadline if math.isfinite(turn.deadline) else None,
        }
    )


def decode_turn(data: bytes) -> Turn:
    """The turn that a process of the same version encoded. Its steps are not recorded, and its inbox is empty."""
    record = orjson.loads(data)
    speaker, deadline = record["speaker"], record["deadline"]
    return Turn(
        **{
            **record,
            "mail": tuple(map(_inbound, record["mail"])),
            "history": tuple(Entry(**row) for row in record["history"]),
            "rows": tuple(Entry(**row) for row in record["rows"]),
            "notes": tuple(record["notes"]),
            "memory": tuple(record["memory"]),
            "answers": {id: Said(**said) for id, said in record["answers"].items()},
            "speaker": Speaker(
                speaker["owner"],
                frozenset(speaker["rights"]),
                tuple(speaker["credentials"]),
                speaker["shown_as"],
            ),
            "deadline": math.inf if deadline is None else deadline,
        }
    )


def encode_event(event: Event) -> bytes:
    """The event. Malformed where something in it has no form in JSON."""
    match event:
        case Delta(text) | Thought(text) | Notice(text):
            content: Any = text
        case Began(call):
            content = call
        case Row(entry):
            content = entry
        case Took(ids):
            content = ids
        case Spent(usage):
            content = dict(usage)
        case Done(replies):
            content = replies
        case Ended(call, ok, text):
            content = {"call": call, "ok": ok, "text": text}
        case Ask(id, text, choices, expires, open_call):
            seconds = expires.total_seconds() if expires is not None else None
            content = {"id": id, "text": text, "choices": choices, "expires_s": seconds, "call": open_call}
    return encode_json({_KINDS[type(event)]: content})


def decode_event(record: Any) -> Event:
    """The event in a parsed record; Malformed, with the reason, for anything else."""
    if not isinstance(record, Mapping) or len(record) != 1:
        raise Malformed("an event is an object with one field, named after its kind")
    [(kind, content)] = record.items()
    decode = _DECODERS.get(kind)
    if decode is None:
        raise Malformed(f"there is no event {kind!r:.40}")
    try:
        return decode(content)
    except (KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"the event {kind} lacks something, or has something else: {error!s:.80}") from None


def encode_result(result: Result) -> bytes:
    return encode_json({"result": result})


def decode_result(fields: Mapping[str, Any]) -> Result:
    """The result that a process of the same version encoded."""
    return Result(tuple(Entry(**entry) for entry in fields["entries"]), _replies(fields["replies"]))


def _inbound(fields: Mapping[str, Any]) -> Inbound:
    source, media = decode_source(fields["source"]), decode_media(fields["media"])
    return Inbound(**{**fields, "source": source, "media": media})


def _ask(content: Mapping[str, Any]) -> Ask:
    seconds, call = content.get("expires_s"), content.get("call")
    return Ask(
        content["id"],
        content["text"],
        tuple(content.get("choices") or ()),
        timedelta(seconds=seconds) if seconds is not None else None,
        Call(**call) if call is not None else None,
    )


def _replies(content: Any) -> tuple[Reply, ...]:
    return tuple(
        Reply(
            reply["text"], decode_media(reply.get("media") or ()), decode_address(reply.get("to")), reply.get("edits")
        )
        for reply in content
    )


_KINDS: dict[type[Event], str] = {
    kind: kind.__name__.lower() for kind in (Delta, Thought, Began, Ended, Notice, Row, Took, Spent, Ask, Done)
}
_DECODERS: dict[str, Callable[[Any], Event]] = {
    "delta": Delta,
    "thought": Thought,
    "notice": Notice,
    "began": lambda call: Began(Call(**call)),
    "ended": lambda content: Ended(Call(**content["call"]), content["ok"], content["text"]),
    "row": lambda entry: Row(Entry(**entry)),
    "took": lambda ids: Took(tuple(ids)),
    "spent": lambda usage: Spent(dict(usage)),
    "ask": _ask,
    "done": lambda content: Done(_replies(content)),
}

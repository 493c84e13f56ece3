"""Turns and events as JSON records, for agents in another process.

| record | form |
|---|---|
| a turn | `{"v":1,"turn":{…}}`, with `"seconds"` beside `turn` where the reader is told how long it may take |
| an event | `{"v":1,"<kind>":…}`, named after its class: `{"v":1,"delta":"Hel"}`, `{"v":1,"done":[{"text":"Hello"}]}` |

Fields that only a later version knows are ignored, at every depth. An event without `v` is of version 1.
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
    Restarted,
    Row,
    Spent,
    Thought,
    Took,
)
from shared.agent.files import files_in
from shared.agent.steps import UnrecordedSteps
from shared.agent.turn import Said, Speaker, Turn
from shared.codec import ROW, decode_address, decode_media, decode_source, encode_json, from_fields
from shared.errors import Malformed
from shared.field_types import TEXT, FieldTypes, of_type
from shared.messages import Entry, Inbound, Kind, OwnInbound, Reply, TaskInbound

TURN_VERSION, EVENT_VERSION = 1, 1
_LOCAL = ("steps", "inbox", "files")  # they act: whoever reads the turn gets its own
_CALL = FieldTypes(of_type(TEXT, "id", "name", "arguments"))
_CARRIED = tuple(field.name for field in fields(Turn) if field.name not in _LOCAL)


def encode_turn(turn: Turn, seconds: float | None = None) -> bytes:
    """The turn without its steps and its inbox, and with the place of its files. Malformed where something in it has no form
    in JSON.

    `seconds` is the time that is left for it, for readers that have another clock.
    """
    speaker = turn.speaker
    content = {
        **{name: getattr(turn, name) for name in _CARRIED},
        "history": tuple(turn.history),
        "speaker": {
            "owner": speaker.owner,
            "rights": sorted(speaker.rights),
            "credentials": speaker.credentials,
            "shown_as": speaker.shown_as,
        },
        "deadline": turn.deadline if math.isfinite(turn.deadline) else None,
        "file_directory": turn.files.directory,  # only for processes of this machine
    }
    left = {} if seconds is None else {"seconds": seconds}
    return encode_json({"v": TURN_VERSION, **left, "turn": content})


def decode_turn(data: bytes) -> Turn:
    """The turn in a record; Malformed for anything else and for versions from the future. Its steps are not recorded: whoever
    runs it gives it others. Its inbox is empty. Its deadline and its files are those of the machine that encoded it."""
    try:
        record = orjson.loads(data)
        _check_version(record["v"], TURN_VERSION)
        return _turn(record["turn"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Malformed(f"not a turn: {error!s:.80}") from None


def encode_event(event: Event) -> bytes:
    """The event. Malformed where it is none, or where something in it has no form in JSON."""
    match event:
        case Delta(text) | Thought(text) | Notice(text):
            content: Any = text
        case Restarted():
            content = True
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
        case _:
            raise Malformed(f"{type(event).__name__} is no event")
    return encode_json({"v": EVENT_VERSION, _KINDS[type(event)]: content})


def decode_event(record: Any) -> Event:
    """The event in a parsed record; Malformed, with the reason, for anything else and for versions from the future."""
    if not isinstance(record, Mapping):
        raise Malformed("an event is an object")
    _check_version(record.get("v", 1), EVENT_VERSION)
    kinds = _DECODERS.keys() & record.keys()
    if len(kinds) != 1:
        raise Malformed(f"an event has one kind, and not {sorted(map(str, record))!s:.80}")
    [kind] = kinds
    try:
        return _DECODERS[kind](record[kind])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Malformed(f"the event {kind} lacks something, or has something else: {error!s:.80}") from None


def _check_version(version: Any, known: int) -> None:
    if type(version) is not int or version != known:
        raise Malformed(f"wire version {version!r:.20} is not known")


def _turn(content: Mapping[str, Any]) -> Turn:
    speaker, deadline = content["speaker"], content["deadline"]
    known = {
        **content,
        "mail": tuple(map(_inbound, content["mail"])),
        "history": tuple(map(_entry, content["history"])),
        "rows": tuple(map(_entry, content["rows"])),
        "notes": tuple(content["notes"]),
        "memory": tuple(content["memory"]),
        "asking": tuple(content.get("asking") or ()),
        "answers": {id: from_fields(Said, said) for id, said in content["answers"].items()},
        "asker": decode_source(content["asker"]) if content.get("asker") is not None else None,
        "speaker": Speaker(
            speaker["owner"],
            frozenset(speaker["rights"]),
            tuple(speaker["credentials"]),
            speaker["shown_as"],
        ),
        "deadline": math.inf if deadline is None else deadline,
        "steps": UnrecordedSteps(content["run"]),
        "files": files_in(content.get("file_directory")),
    }
    return from_fields(Turn, known)


def _inbound(content: Mapping[str, Any]) -> Inbound:
    source, media = decode_source(content["source"]), decode_media(content["media"])
    known = {**content, "source": source, "media": media}
    if "purpose" not in content:
        return from_fields(Inbound, known)
    known["purpose"] = Kind(content["purpose"])
    if "asked_by" not in content:
        return from_fields(OwnInbound, known)
    asked_by = content["asked_by"]
    return from_fields(TaskInbound, {**known, "asked_by": decode_source(asked_by) if asked_by is not None else None})


def _entry(content: Any) -> Entry:
    entry = from_fields(Entry, content)
    ROW.check(entry, "row")
    return entry


def _call(content: Any) -> Call:
    call = from_fields(Call, content)
    _CALL.check(call, "call")
    return call


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError(f"{type(content).__name__} is no text")
    return content


def _ask(content: Mapping[str, Any]) -> Ask:
    seconds, call = content.get("expires_s"), content.get("call")
    return Ask(
        _text(content["id"]),
        _text(content["text"]),
        tuple(map(_text, content.get("choices") or ())),
        timedelta(seconds=seconds) if seconds is not None else None,
        _call(call) if call is not None else None,
    )


def _replies(content: Any) -> tuple[Reply, ...]:
    return tuple(
        Reply(
            _text(reply["text"]),
            decode_media(reply.get("media") or ()),
            decode_address(reply.get("to")),
            _text(edits) if (edits := reply.get("edits")) is not None else None,
        )
        for reply in content
    )


_KINDS: dict[type[Event], str] = {
    kind: kind.__name__.lower()
    for kind in (Delta, Thought, Restarted, Began, Ended, Notice, Row, Took, Spent, Ask, Done)
}
_DECODERS: dict[str, Callable[[Any], Event]] = {
    "delta": lambda text: Delta(_text(text)),
    "thought": lambda text: Thought(_text(text)),
    "restarted": lambda _: Restarted(),
    "notice": lambda text: Notice(_text(text)),
    "began": lambda call: Began(_call(call)),
    "ended": lambda content: Ended(_call(content["call"]), bool(content["ok"]), _text(content["text"])),
    "row": lambda entry: Row(_entry(entry)),
    "took": lambda ids: Took(tuple(map(_text, ids))),
    "spent": lambda usage: Spent(dict(usage)),
    "ask": _ask,
    "done": lambda content: Done(_replies(content)),
}

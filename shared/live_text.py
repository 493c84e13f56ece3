"""What an agent has said so far, on its way from the worker to whoever waits for the answer: JSON on a channel of Redis.

Nothing is kept: what is missed, the committed answer makes good. Texts are numbered, so that a reader notices a gap. A record
is `{"attempt": 1, "said": [{"row": 0, "at": 0, "text": "Hel"}, {"thought": "…"}]}`; the last one of an attempt has `usage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from shared.value import value


@value
class SaidText:
    """A piece of the answer's text. A turn that runs tools writes several rows, each from its beginning on."""

    row: int
    at: int  # characters of the row before it
    text: str


@value
class SaidThought:
    """A piece of the model's reasoning."""

    thought: str


@value
class TokensUsed:
    """What an answer has used."""

    input: int
    output: int


@value
class LiveRecord:
    """What one attempt said since the last record. `usage` is there when it has said all."""

    attempt: int
    said: Sequence[SaidText | SaidThought] = ()
    usage: TokensUsed | None = None
    is_last: bool = False


def encode_live(record: LiveRecord) -> bytes:
    """The record; raises what orjson raises for text that is not Unicode."""
    return orjson.dumps(record)


def decode_live(data: bytes) -> LiveRecord | None:
    """The record; None for anything else: whoever can publish in Redis can spoil a live text, and nothing more."""
    try:
        fields = orjson.loads(data)
        usage = fields["usage"]
        return LiveRecord(
            _number(fields["attempt"]),
            tuple(map(_said, fields["said"])),
            TokensUsed(_number(usage["input"]), _number(usage["output"])) if usage is not None else None,
            fields["is_last"] is True,
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def _said(fields: Any) -> SaidText | SaidThought:
    if "thought" in fields:
        return SaidThought(_text(fields["thought"]))
    return SaidText(_number(fields["row"]), _number(fields["at"]), _text(fields["text"]))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("no text")
    return found


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError("no number")
    return found

"""What table outbox holds of a part, as JSON: written by the worker that decides it, read by whoever sends or shows it.

`v` is the version; records from before there was one have none and are of version 1. The rules are those of shared/mail.py:
fields that a reader does not know are ignored, and a newer version is TooNew, so that the part is left to a newer worker.
"""

from __future__ import annotations

from typing import Any

import orjson

from shared.address import Address
from shared.choices import Choice
from shared.codec import check_version, decode_address, decode_media, decode_source, encode_text, source_fields
from shared.errors import Malformed
from shared.messages import Media, Source
from shared.value import value

PART_VERSION = 1


@value
class PartRecord:
    """A part without what the other columns of its row say."""

    source: Source
    in_reply_to: tuple[str, ...]
    part: int
    parts: int
    text: str
    media: tuple[Media, ...] = ()
    answers: str | None = None
    to: Address | None = None
    edits: str | None = None
    draft: str | None = None
    shown: int = 0
    trace: str | None = None
    choices: tuple[Choice, ...] = ()  # an older sender ignores them: the text says how to answer without buttons


def encode_part(record: PartRecord) -> str:
    """The record of one part; Malformed for text that is not Unicode."""
    fields: dict[str, Any] = {
        "v": PART_VERSION,
        "source": source_fields(record.source),
        "in_reply_to": record.in_reply_to,
        "part": record.part,
        "parts": record.parts,
        "text": record.text,
        "media": record.media,
    }
    if record.answers is not None:
        fields["answers"] = record.answers
    if record.to is not None:
        fields["to"] = record.to
    if record.edits is not None:
        fields["edits"] = record.edits
    if record.draft is not None:
        fields["draft"] = record.draft
    if record.shown:
        fields["shown"] = record.shown
    if record.trace is not None:
        fields["trace"] = record.trace
    if record.choices:
        fields["choices"] = record.choices
    return encode_text(fields)


def decode_part(payload: str) -> PartRecord:
    """The part in a record; TooNew for a newer version, Malformed for garbage."""
    try:
        fields = orjson.loads(payload)
        check_version("a reply", fields.get("v", 1), PART_VERSION)
        return PartRecord(
            source=decode_source(fields["source"]),
            in_reply_to=tuple(fields["in_reply_to"]),
            part=fields["part"],
            parts=fields["parts"],
            text=fields["text"],
            media=decode_media(fields["media"]),
            answers=fields.get("answers"),
            to=decode_address(fields.get("to")),
            edits=fields.get("edits"),
            draft=fields.get("draft"),
            shown=fields.get("shown", 0),
            trace=_text(fields.get("trace")),
            choices=tuple(Choice(str(one["label"]), str(one["command"])) for one in fields.get("choices", ())),
        )
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise Malformed(f"not a part: {type(error).__name__}") from None


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None

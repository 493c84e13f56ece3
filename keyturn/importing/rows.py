"""The older gateways' messages as rows of ours. Both keep what their model's API speaks: role, content, tool calls.

Nothing here raises for what a file says: what cannot be understood is None, and is counted by whoever reads the file.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from keyturn.importing.conversation import TimedRow
from shared.codec import encode_text, storable
from shared.context import marks
from shared.errors import Malformed
from shared.messages import Entry, Media

ROLES = frozenset({"user", "assistant", "tool", "system"})
_LATEST = 32_503_680_000_000  # the year 3000, in ms: what claims to be later is no time
_PROACTIVE = ("_channel_delivery", "mirror")
_HIDDEN = ("_hidden_history", "injected_event", "_automation_turn", "_cron_turn")
_SIGNED = re.compile(  # `[name] text`, or `[name|id]` and the text below it; what it replies to may be quoted above
    r"(\[Replying to[^\n]*\]\n\n)?\[([^\n]{1,128}?)(?:\] |\|([^|\]\n]{1,64})\]\n)(.*)", re.DOTALL
)
BLOCKS_LIMIT = 256 * 1024  # bytes of content blocks on one row: every turn loads its window, so pictures have a limit
NESTED_LIMIT = 100  # levels of a value that is kept: orjson writes 254, and a whole turn has some around a row's marks


def objects(path: Path) -> Iterator[dict[str, Any] | None]:
    """The JSON objects of a file, line by line; None for a line that is something else."""
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield object_of(line)


def object_of(text: bytes | str | None) -> dict[str, Any] | None:
    """A JSON object. None: the text is no JSON, or something else."""
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def row_of(fields: Mapping[str, Any], *, otherwise_at: int, active: bool = True) -> TimedRow | None:
    """The row that a message becomes; None where it is no message, or nested deeper than Python can write.

    A mark that no database could keep is left out; the text comes along without it.
    """
    try:
        return _row(fields, otherwise_at, active)
    except RecursionError:
        return None


def _row(fields: Mapping[str, Any], otherwise_at: int, active: bool) -> TimedRow | None:
    role = fields.get("role")
    if role not in ROLES:
        return None
    text, media = _content(fields.get("content"))
    media += _paths(fields.get("media"))
    at = time_of(fields.get("timestamp"))
    data: dict[str, Any] = {marks.MEDIA: [vars_of(item) for item in media], marks.AT: at}
    data[marks.COMMAND] = bool(fields.get("_command"))
    if role in ("user", "assistant"):
        data[marks.BLOCKS] = _blocks(fields.get("content"))
    data[marks.HIDDEN] = any(fields.get(mark) for mark in _HIDDEN)
    if role == "assistant":
        data[marks.PROACTIVE] = any(fields.get(mark) for mark in _PROACTIVE)
        data[marks.TOOL_CALLS] = _calls(fields.get("tool_calls"))
        data[marks.REASONING] = _reasoning(fields)
        data[marks.THINKING] = _thinking(fields)
    elif role == "tool":
        data[marks.TOOL_CALL_ID] = _text(fields.get("tool_call_id"))
        data[marks.NAME] = _text(fields.get("tool_name")) or _text(fields.get("name"))
    kept = {name: value for name, value in data.items() if value}
    return TimedRow(Entry(role, text, None, kept), otherwise_at if at is None else at, active)


def is_signed(row: TimedRow) -> bool:
    """Whether its text begins with its sender, as hermes wrote what is said where several people share a session."""
    return row.entry.role == "user" and _SIGNED.fullmatch(row.entry.text) is not None


def with_sender(row: TimedRow) -> TimedRow:
    """The row with its sender as a mark, not as a part of the text."""
    found = _SIGNED.fullmatch(row.entry.text) if row.entry.role == "user" else None
    if found is None:
        return row
    quote, name, id, text = found.groups()
    data = {**row.entry.data, marks.SENDER: name}
    if id is not None:
        data[marks.SENDER_ID] = id
    if blocks := data.get(marks.BLOCKS):
        data[marks.BLOCKS] = [_without_sender(block) for block in blocks]
    return replace(row, entry=replace(row.entry, text=(quote or "") + text, data=data))


def _without_sender(block: Any) -> Any:
    text = block.get("text") if isinstance(block, dict) else None
    found = _SIGNED.fullmatch(text) if isinstance(text, str) else None
    return {**block, "text": (found[1] or "") + found[4]} if found is not None else block


def time_of(value: Any) -> int | None:
    """Wall-clock ms of a time written in ISO form (without a zone: this machine's) or as seconds since 1970."""
    try:
        if isinstance(value, str):
            seconds = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        else:
            return None
        ms = int(seconds * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return ms if 0 < ms < _LATEST else None


def vars_of(media: Media) -> dict[str, str | None]:
    return {"url": media.url, "type": media.type, "name": media.name}


def _content(content: Any) -> tuple[str, tuple[Media, ...]]:
    """The words of a content, and its files. A file that lay inside the text itself leaves its kind only."""
    if isinstance(content, str):
        return storable(content), ()
    if not isinstance(content, list):
        return ("" if content is None else storable(json.dumps(content, ensure_ascii=False))), ()
    words: list[str] = []
    media: list[Media] = []
    for block in content:
        if isinstance(block, str):
            words.append(block)
        elif not isinstance(block, dict):
            continue
        elif isinstance(block.get("text"), str):
            words.append(block["text"])
        elif (url := _url(block)) is not None:
            if url.startswith("data:"):
                words.append("[image]")
            else:
                media.append(Media(storable(url), "image/*"))
    return storable("\n".join(word for word in words if word)), tuple(media)


def _blocks(content: Any) -> list[Any] | None:
    """A content of blocks as it is, where it says more than its text does."""
    if not isinstance(content, list) or all(isinstance(block, str) or _is_plain(block) for block in content):
        return None
    blocks = _kept(content)
    return blocks if isinstance(blocks, list) and len(encode_text(blocks)) <= BLOCKS_LIMIT else None


def _is_plain(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"type", "text"} and isinstance(block["text"], str)


def _kept(value: Any) -> Any:
    """A JSON value as every database keeps it; None where it is nested too deep, or a number in it is too large."""
    try:
        found = _storable_value(value, NESTED_LIMIT)
        encode_text(found)
    except Malformed:
        return None
    return found


def _storable_value(value: Any, levels: int) -> Any:
    """A JSON value without characters that some database cannot keep; Malformed if it has more levels than that."""
    if levels < 0:
        raise Malformed("nested too deep")
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable_value(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {storable(str(name)): _storable_value(item, levels - 1) for name, item in value.items()}
    return value


def _url(block: Mapping[str, Any]) -> str | None:
    """Where an image block points to, or that it holds the image itself."""
    image = block.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str) and url:
        return url
    return "data:" if block.get("type") in ("image", "image_url", "input_image") else None


def _paths(media: Any) -> tuple[Media, ...]:
    """Files that lay beside the old gateway, by the path they had there."""
    paths = [path for path in media if isinstance(path, str) and path] if isinstance(media, list) else []
    return tuple(Media(storable(path), mimetypes.guess_type(path)[0], storable(Path(path).name)) for path in paths)


def _calls(value: Any) -> list[dict[str, str]]:
    """Tool calls in our form: {id, name, arguments}. One without an id or a name could never be answered."""
    calls = []
    for call in _listed(value):
        function = call.get("function") if isinstance(call, dict) else None
        about = function if isinstance(function, dict) else call if isinstance(call, dict) else {}
        id, name = _text(call.get("id")) if isinstance(call, dict) else None, _text(about.get("name"))
        if id and name:
            calls.append({"id": id, "name": name, "arguments": _arguments(about.get("arguments"))})
    return calls


def _arguments(value: Any) -> str:
    return storable(value) if isinstance(value, str) else json.dumps({} if value is None else value)


def _reasoning(fields: Mapping[str, Any]) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if thought := _text(fields.get(name)):
            return thought
    blocks = fields.get("thinking_blocks")
    found = [block.get("thinking") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return storable("\n".join(thought for thought in found if isinstance(thought, str))) or None


def _thinking(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model thought, in its provider's own blocks: only with their signatures may they be sent back to it.

    nanobot keeps thinking blocks. hermes keeps details of several kinds; of those without a signature, the text is enough.
    """
    blocks = _listed(fields.get("thinking_blocks")) or [
        block for block in _listed(fields.get("reasoning_details")) if _is_signed_thought(block)
    ]
    return [kept for block in blocks if isinstance(block, dict) and (kept := _kept(block)) is not None]


def _is_signed_thought(block: Any) -> bool:
    return isinstance(block, dict) and (bool(block.get("signature")) or block.get("type") == "redacted_thinking")


def _listed(value: Any) -> list[Any]:
    """A list, or one that is written as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) and value else None

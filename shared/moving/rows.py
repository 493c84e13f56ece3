"""The older gateways' messages as rows of ours. Both keep what their model's API speaks: role, content, tool calls.

Nothing here raises for what a file says: what cannot be understood is None, and is counted by whoever reads the file.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from shared.codec import storable
from shared.context import marks
from shared.messages import Entry, Media
from shared.moving.conversation import Row

ROLES = frozenset({"user", "assistant", "tool", "system"})
_LATEST = 32_503_680_000_000  # the year 3000, in ms: what claims to be later is no time
_PROACTIVE = ("_channel_delivery", "mirror")
_HIDDEN = ("_hidden_history", "injected_event")


def objects(path: Path) -> Iterator[dict[str, Any] | None]:
    """The JSON objects of a file, line by line; None for a line that is something else."""
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield object_of(line)


def object_of(text: bytes | str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def row_of(fields: Mapping[str, Any], *, otherwise_at: int, active: bool = True) -> Row | None:
    """The row that a message becomes; None where it is no message."""
    role = fields.get("role")
    if role not in ROLES:
        return None
    text, media = _content(fields.get("content"))
    media += _paths(fields.get("media"))
    at = time_of(fields.get("timestamp"))
    data: dict[str, Any] = {marks.MEDIA: [vars_of(item) for item in media], marks.AT: at}
    data[marks.COMMAND] = bool(fields.get("_command"))
    data[marks.HIDDEN] = any(fields.get(mark) for mark in _HIDDEN)
    if role == "assistant":
        data[marks.PROACTIVE] = any(fields.get(mark) for mark in _PROACTIVE)
        data[marks.TOOL_CALLS] = _calls(fields.get("tool_calls"))
        data[marks.REASONING] = _reasoning(fields)
    elif role == "tool":
        data[marks.TOOL_CALL_ID] = _text(fields.get("tool_call_id"))
        data[marks.NAME] = _text(fields.get("tool_name")) or _text(fields.get("name"))
    kept = {name: value for name, value in data.items() if value}
    return Row(Entry(role, text, None, kept), otherwise_at if at is None else at, active)


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
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    calls = []
    for call in value if isinstance(value, list) else ():
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


def _text(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) and value else None

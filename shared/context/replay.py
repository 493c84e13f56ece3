"""How one row of a transcript is shown to the model: what it refers to, breadcrumbs for media, times, and none of the model's
own echoes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

from shared.blobs.address import SCHEME as BLOB
from shared.context.labels import inert
from shared.context.marks import AT, BLOCKS, COMMAND, EARLIER, REASONING, REPLAYED, TOOL_CALLS, media_of, text_block
from shared.context.shared_thread import after_earlier
from shared.messages import Entry, Media

NO_OUTPUT = "(no output)"  # of a tool: providers refuse an empty result
_KINDS = {"image": "image", "audio": "audio", "video": "video"}
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\]\n]{0,40}"
_STAMP = re.compile(rf"\s*\[(?:Message Time: [^\]\n]{{1,80}}|{_TIME})\][ \t]*\n?")
# A file that the answer names, or an image behind an address, may be what the user asked for: those lines stay.
_CRUMB = re.compile(r"\[(?:image|audio|video): (?!https?://)[^\]\n]*\]")
_ECHOED_CALL = re.compile(r"(?:generate_image|message)\(.*\)")


def shown(entry: Entry, *, times_in: tzinfo | None = None) -> Entry | None:
    """A row as the model gets it, or None where it gets nothing: commands, system rows, and what is empty."""
    if entry.data.get(COMMAND) or entry.role == "system":
        return None
    text, data = entry.text, {key: entry.data[key] for key in REPLAYED if key in entry.data}
    if entry.role == "user":
        text = text if BLOCKS in data else _with_media(entry)
        if times_in is not None and (at := entry.data.get(AT)):
            text = f"{stamp(at, times_in)} {text}"
            if BLOCKS in data:
                data[BLOCKS] = [text_block(stamp(at, times_in)), *data[BLOCKS]]
        if earlier := entry.data.get(EARLIER):
            text = after_earlier(earlier, text)
    elif entry.role == "assistant" and BLOCKS not in entry.data:
        text = without_echoes(text)
    elif entry.role == "tool" and not text.strip():
        text = NO_OUTPUT
    if not text.strip() and not any(data.get(key) for key in (TOOL_CALLS, REASONING, BLOCKS)):
        return None
    return Entry(entry.role, text, entry.inbound_id, data)


def stamp(at_ms: int, zone: tzinfo) -> str:
    """When a user wrote. Only users' rows carry it: a model that sees it on its own rows begins to write it.

    On some platforms the sender's own program says when that was, and may say any number."""
    try:
        return f"[{datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone):%Y-%m-%d %H:%M %Z}]"
    except (OverflowError, ValueError, OSError):
        return "[at an unknown time]"


def breadcrumb(media: Media) -> str:
    """What is left of a file in the text. Its name is the sender's, so it is cleaned and cannot close the bracket."""
    kind = _KINDS.get((media.type or "image").partition("/")[0], "file")
    called = media.name or (media.type or kind if media.url.startswith(BLOB) else media.url)
    name = inert(called, 240).replace("[", "(").replace("]", ")")
    return f"[{kind}: {name}]"


def without_echoes(text: str) -> str:
    """An assistant's text without what it imitated: one time at its head, lines that are a breadcrumb or a tool call."""
    text = _STAMP.sub("", text, count=1) if _STAMP.match(text) else text
    lines = text.split("\n")
    kept = [line for line in lines if not _is_echo(line.strip())]
    return text if len(kept) == len(lines) else "\n".join(kept).strip()


def _is_echo(line: str) -> bool:
    return bool(_CRUMB.fullmatch(line) or _ECHOED_CALL.fullmatch(line))


def _with_media(entry: Entry) -> str:
    crumbs = [breadcrumb(media) for media in media_of(entry)]
    return "\n".join([entry.text, *crumbs] if entry.text else crumbs)

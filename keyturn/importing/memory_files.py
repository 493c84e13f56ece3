"""The older gateways' memory files, as notes of ours: one line each, none longer than a note is shown.

hermes keeps entries with a line of `§` between them. nanobot keeps Markdown: a list item or a paragraph is a note, with the
heading above it. What its templates ask to be filled in and nobody filled in is no note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shared.codec import storable
from shared.context.memory import NOTE_LIMIT

_SEPARATOR = "\n§\n"
_HEADING = re.compile(r"(#+)\s+(.*)")
_BULLET = re.compile(r"[-*+]\s+(?:\[([ xX])\]\s*)?(.*)")
_BLANK = re.compile(
    r"(?:\*\*[^*]+\*\*:\s*)?\(.*\)|\*[^*].*\*|[-*_]{3,}|[-*+]"
)  # `**Name**: (your name)`, `*Edit this*`, `---`
_TEMPLATE = frozenset(
    [
        "This file stores important information that should persist across sessions.",
        "Information about the user to help personalize interactions.",
    ]
)


def entries_of(path: Path) -> tuple[str, ...]:
    """The notes of a hermes file; none where there is no file."""
    return tuple(note for entry in _text(path).split(_SEPARATOR) for note in _notes(entry))


def lines_of(path: Path) -> tuple[str, ...]:
    """The notes of a Markdown file; none where there is no file."""
    return tuple(note for line in _said(_text(path)) for note in _notes(line))


def _said(text: str) -> Iterator[str]:
    heading, paragraph = "", list[str]()
    for line in (*text.splitlines(), ""):
        line = line.strip()
        title, bullet = _HEADING.fullmatch(line), _BULLET.fullmatch(line)
        if line and not title and not bullet and not _BLANK.fullmatch(line):
            paragraph.append(line)
            continue
        if (whole := " ".join(paragraph)) and whole not in _TEMPLATE:
            yield f"{heading}{whole}"
        paragraph = []
        if title:
            heading = f"{title[2].strip()}: " if len(title[1]) > 1 else ""  # the first level is the file's own title
        elif bullet and bullet[1] != " " and bullet[2] and not _BLANK.fullmatch(bullet[2]):
            yield f"{heading}{bullet[2]}"


def _notes(text: str) -> Iterator[str]:
    """A text as lines that fit: cut between words, or where there are none."""
    rest = " ".join(storable(text).split())
    while len(rest) > NOTE_LIMIT:
        cut = rest.rfind(" ", 0, NOTE_LIMIT + 1)
        cut = cut if cut > 0 else NOTE_LIMIT
        yield rest[:cut]
        rest = rest[cut:].lstrip()
    if rest:
        yield rest


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

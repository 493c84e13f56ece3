"""Labels from outside: names, titles, topics, file names. Whoever chose them may want the model to take them for more."""

from __future__ import annotations

import unicodedata

import orjson

LABEL_LIMIT = 240
_SPACES = {"Cc", "Zl", "Zp", "Zs"}  # control characters, all line and paragraph separators
_NOTHING = {"Cf", "Cs", "Co", "Cn"}  # bidi and zero-width characters, tags, half surrogate pairs, what has no meaning
# Letters and marks that show nothing, and the selectors in which whole texts can be hidden.
_BLANK = {
    *map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
    *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0",
}


def inert(text: str, limit: int = LABEL_LIMIT) -> str:
    """One line of visible characters, at most `limit` of them. It may be empty."""
    seen = "".join(_visible(character) for character in text[: limit * 8])
    line = " ".join(seen.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def quoted(text: str, limit: int = LABEL_LIMIT) -> str:
    """The label as a JSON string: the model can see where it begins and ends, whatever is in it."""
    return orjson.dumps(inert(text, limit)).decode()


def _visible(character: str) -> str:
    if character.isascii():
        return character if " " < character < "\x7f" else " "
    category = unicodedata.category(character)
    if category in _SPACES:
        return " "
    return "" if category in _NOTHING or character in _BLANK else character

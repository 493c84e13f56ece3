"""What a conversation is called where nobody gave it a title."""

from __future__ import annotations

WORDS, LENGTH = 8, 60


def first_words(text: str) -> str:
    words = "".join(char if char.isprintable() else " " for char in text[:500]).split()
    line = " ".join(words[:WORDS])
    if len(line) > LENGTH:
        return line[: LENGTH - 1].rstrip() + "…"
    return line + "…" if len(words) > WORDS else line

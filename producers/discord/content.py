"""What a text says, in words: Discord writes people, roles, channels and emoji as marks around their ids."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from shared.codec import storable

_MARK = re.compile(r"<(@[!&]?|#)([0-9]{1,20})>|<a?(:\w{1,64}:)[0-9]{1,20}>", re.ASCII)
_SEPARATORS = " ,:\n"  # between a mention at the beginning and what is said


def marked_ids(text: str) -> set[str]:
    """The ids of people, roles and channels that a text mentions."""
    return {found[2] for found in _MARK.finditer(text) if found[2]}


def readable(text: str, names: Mapping[str, str]) -> str:
    """`<@42>` is "@Ann", `<#7>` is "#plans", `<:wave:1>` is ":wave:". An id without a name stays as it is."""

    def word(found: re.Match[str]) -> str:
        sign, id, emoji = found.groups()
        return emoji or (f"{sign[0]}{names[id]}" if id in names else found[0])

    return storable(_MARK.sub(word, text))


def without_address(text: str, ours: Collection[str]) -> str:
    """The text without the mentions of us at its beginning and its end. One that says nothing else stays as it is.

    Each character is looked at a fixed number of times, however often a stranger mentions us."""
    if not ours:
        return text
    us = "|".join(map(re.escape, sorted(ours)))
    mentions = list(re.finditer(f"<@[!&]?(?:{us})>", text))
    begin, end = 0, len(text)
    for mention in mentions:
        if text[begin : mention.start()].strip():
            break
        begin = _after(text, mention.end())
    for mention in reversed(mentions):
        if mention.start() < begin or text[mention.end() : end].strip():
            break
        end = mention.start()
    rest = text[begin:end] if end == len(text) else text[begin:end].rstrip()
    return rest if rest.strip() else text


def _after(text: str, place: int) -> int:
    """Where the text goes on after a mention at its beginning."""
    while place < len(text) and text[place] in _SEPARATORS:
        place += 1
    return place

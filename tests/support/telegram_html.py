"""Telegram's HTML mode as strictly as Telegram reads it: the visible text and its entities, or a ValueError."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

_KINDS = {
    "b": "bold",
    "i": "italic",
    "u": "underline",
    "s": "strikethrough",
    "tg-spoiler": "spoiler",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
}
_TOKEN = re.compile(r"<(/?)([a-z-]+)((?: [a-z]+=\"[^\"<>]*\")*)>|(&(?:amp|lt|gt|quot);)|([^<>&]+)")
_ATTRIBUTES = {"a": {"href"}, "code": {"class"}}


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def parse_html(source: str) -> tuple[str, list[dict[str, Any]]]:
    text, at = "", 0
    entities: list[dict[str, Any]] = []
    open_tags: list[tuple[str, int, dict[str, str]]] = []
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise ValueError(f"unsupported start tag or bare character at byte offset {at}")
        at = found.end()
        if found[2] is None:
            text += unescape(found[0])
        elif not found[1]:
            open_tags.append((found[2], units(text), _attributes(found[2], found[3])))
        else:
            if not open_tags or open_tags[-1][0] != found[2]:
                raise ValueError(f"unexpected end tag at byte offset {at}")
            entities += _entity(*open_tags.pop(), units(text), open_tags)
    if open_tags:
        raise ValueError(f"can't find end tag corresponding to start tag {open_tags[-1][0]}")
    return text, sorted(entities, key=lambda entity: (entity["offset"], -entity["length"]))


def _attributes(tag: str, written: str) -> dict[str, str]:
    if tag not in _KINDS:
        raise ValueError(f'unsupported start tag "{tag}"')
    found = dict(re.findall(r" ([a-z]+)=\"([^\"]*)\"", written))
    if not set(found) <= _ATTRIBUTES.get(tag, set()):
        raise ValueError("unexpected attribute")
    return {name: unescape(value) for name, value in found.items()}


def _entity(
    tag: str, start: int, attributes: dict[str, str], end: int, outer: list[tuple[str, int, dict[str, str]]]
) -> list[dict[str, Any]]:
    if end == start:
        return []
    entity: dict[str, Any] = {"type": _KINDS[tag], "offset": start, "length": end - start}
    if tag == "a":
        entity["url"] = attributes["href"]
    if tag == "code" and "class" in attributes:
        if not outer or outer[-1][0] != "pre":
            raise ValueError("a language belongs in pre")
        outer[-1][2]["language"] = attributes["class"].removeprefix("language-")
        return []
    if tag == "pre" and "language" in attributes:
        entity["language"] = attributes["language"]
    return [entity]

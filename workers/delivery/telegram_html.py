"""Markdown as models write it, rendered as the little HTML that Telegram takes.

Safe by construction: all text is escaped, tags are only ours and always nested, and only http(s) links become links. What is
no valid Markdown stays as it was written, and what exceeds the number of entities that Telegram takes is shown without
form. The visible text is never longer than the source.
"""

from __future__ import annotations

import re
from html import escape

ENTITY_LIMIT = 100
_DEPTH = 6
_FENCE = re.compile(r" {0,3}(`{3,})[ \t]*([\w+#.-]*)[^`\n]*")
_HEADING = re.compile(r"#{1,6} +(.+?)[ #]*")
_BULLET = re.compile(r"( *)[*+-] +(?=\S)")
_QUOTE = re.compile(r"> ?")
_INLINE = re.compile(
    r"(?<!`)(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()<>\"]+(?:\([^\s()<>\"]*\)[^\s()<>\"]*)*)\)"
    r"|\*\*(?P<b>(?=\S).+?(?<=\S))\*\*"
    r"|(?<!\w)__(?P<b2>(?=\S).+?(?<=\S))__(?!\w)"
    r"|~~(?P<s>(?=\S).+?(?<=\S))~~"
    r"|\|\|(?P<spoiler>(?=\S).+?(?<=\S))\|\|"
    r"|(?<![\w*])\*(?P<i>(?=[^\s*]).+?(?<=[^\s*]))\*(?![\w*])"
    r"|(?<!\w)_(?P<i2>(?=[^\s_]).+?(?<=[^\s_]))_(?!\w)"
)
_TAGS = {"b": "b", "b2": "b", "s": "s", "spoiler": "tg-spoiler", "i": "i", "i2": "i"}


def render(markdown: str) -> str:
    """The HTML of a message."""
    return _Renderer().blocks(markdown)


class _Renderer:
    def __init__(self) -> None:
        self._left = ENTITY_LIMIT

    def blocks(self, markdown: str) -> str:
        lines = markdown.split("\n")
        done: list[str] = []
        at = 0
        while at < len(lines):
            if fence := _FENCE.fullmatch(lines[at]):
                end = _end_of_code(lines, at + 1, fence[1])
                done.append(self._code_block(fence[2], lines[at + 1 : end]))
                at = end + 1
            elif _QUOTE.match(lines[at]):
                end = next((n for n in range(at, len(lines)) if not _QUOTE.match(lines[n])), len(lines))
                quoted = "\n".join(self._line(_QUOTE.sub("", line, count=1)) for line in lines[at:end])
                done.append(self._tagged("blockquote", quoted) if quoted.strip() else quoted)
                at = end
            else:
                done.append(self._line(lines[at]))
                at += 1
        return "\n".join(done)

    def _line(self, line: str) -> str:
        if heading := _HEADING.fullmatch(line):
            return self._tagged("b", self._inline(heading[1], _DEPTH))
        return self._inline(_BULLET.sub(r"\1• ", line, count=1) if _BULLET.match(line) else line, _DEPTH)

    def _inline(self, text: str, depth: int) -> str:
        if not depth:
            return _escaped(text)
        done, at = [], 0
        for found in _INLINE.finditer(text):
            done += [_escaped(text[at : found.start()]), self._span(found, depth - 1)]
            at = found.end()
        return "".join([*done, _escaped(text[at:])])

    def _span(self, found: re.Match[str], depth: int) -> str:
        kind = found.lastgroup or ""
        if found["code"] is not None:
            return self._tagged("code", _escaped(found["code"]))
        if found["url"] is not None:
            if self._left <= 0:
                return _escaped(found[0])  # a label alone would lose where it leads
            label = self._inline(found["label"], depth)
            return self._tagged("a", label, f' href="{_escaped(found["url"])}"')
        return self._tagged(_TAGS[kind], self._inline(found[kind], depth))

    def _code_block(self, language: str, lines: list[str]) -> str:
        code = _escaped("\n".join(lines))
        if not code.strip():
            return code
        inner = f'<code class="language-{escape(language)}">{code}</code>' if language else code
        return self._tagged("pre", inner)

    def _tagged(self, tag: str, inner: str, attributes: str = "") -> str:
        self._left -= 1
        return f"<{tag}{attributes}>{inner}</{tag}>" if self._left >= 0 else inner


def _end_of_code(lines: list[str], start: int, mark: str) -> int:
    for n in range(start, len(lines)):
        if len(closing := lines[n].strip()) >= len(mark) and not closing.strip("`"):
            return n
    return len(lines)


def _escaped(text: str) -> str:
    return escape(text, quote=False)

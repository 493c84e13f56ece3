"""Markdown as models write it, rendered as the little HTML that Telegram takes.

Safe by construction: all text is escaped, tags are only ours and always nested, and only http(s) links become links. What is
no valid Markdown stays as it was written, and what exceeds the number of entities that Telegram takes is shown without
form. The visible text is never longer than the source.
"""

from __future__ import annotations

from html import escape

from workers.delivery.inline import Span
from workers.delivery.markdown import BULLET, DEPTH, FENCE, QUOTE, end_of_code, heading_in, spans

ENTITY_LIMIT = 100
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
            if fence := FENCE.fullmatch(lines[at]):
                end = end_of_code(lines, at + 1, fence[1])
                done.append(self._code_block(fence[2], lines[at + 1 : end]))
                at = end + 1
            elif QUOTE.match(lines[at]):
                end = next((n for n in range(at, len(lines)) if not QUOTE.match(lines[n])), len(lines))
                quoted = "\n".join(self._line(QUOTE.sub("", line, count=1)) for line in lines[at:end])
                done.append(self._tagged("blockquote", quoted) if quoted.strip() else quoted)
                at = end
            else:
                done.append(self._line(lines[at]))
                at += 1
        return "\n".join(done)

    def _line(self, line: str) -> str:
        if (heading := heading_in(line)) is not None:
            return self._tagged("b", self._inline(heading, DEPTH))
        return self._inline(BULLET.sub(r"\1• ", line, count=1) if BULLET.match(line) else line, DEPTH)

    def _inline(self, text: str, depth: int) -> str:
        if not depth:
            return _escaped(text)
        done, at = [], 0
        for span in spans(text):
            whole = text[span.start : span.end]
            done += [_escaped(text[at : span.start]), self._span(span, whole, depth - 1)]
            at = span.end
        return "".join([*done, _escaped(text[at:])])

    def _span(self, span: Span, whole: str, depth: int) -> str:
        if span.kind == "code":
            return self._tagged("code", _escaped(span.inner))
        if span.kind == "link":
            if self._left <= 0:
                return _escaped(whole)  # a label alone would lose where it leads
            label = self._inline(span.inner, depth)
            return self._tagged("a", label, f' href="{_escaped(span.url)}"')
        return self._tagged(_TAGS[span.kind], self._inline(span.inner, depth))

    def _code_block(self, language: str, lines: list[str]) -> str:
        code = _escaped("\n".join(lines))
        if not code.strip():
            return code
        inner = f'<code class="language-{escape(language)}">{code}</code>' if language else code
        return self._tagged("pre", inner)

    def _tagged(self, tag: str, inner: str, attributes: str = "") -> str:
        self._left -= 1
        return f"<{tag}{attributes}>{inner}</{tag}>" if self._left >= 0 else inner


def _escaped(text: str) -> str:
    return escape(text, quote=False)

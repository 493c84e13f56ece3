"""Markdown as models write it, rendered as Slack's mrkdwn.

Safe by construction: `&`, `<` and `>` of the text are escaped, so nothing in it can call a whole channel; only http(s)
links, and mentions of one person or one channel, are written as such. What is no valid Markdown stays as it was written.
The result is never longer than `escaped_units` says of the source.
"""

from __future__ import annotations

import re

from workers.delivery.inline import BOLD, BOLD2, ITALIC, ITALIC2, STRIKE, Span, Spans
from workers.delivery.markdown import heading_in

_DEPTH = 6
_APART = "\u200b"  # Slack takes a mark only at the edge of a word; this is an edge, and nobody sees it
_FENCE = re.compile(r" {0,3}(`{3,})[^`\n]*")
_BULLET = re.compile(r"( *)[*+-] +(?=\S)")
_QUOTES = re.compile(r"(?:> ?)+")
_URL = r"https?://[^\s()<>|\"]+(?:\([^\s()<>|\"]*\)[^\s()<>|\"]*)*"
_OTHER = re.compile(
    rf"!?\[(?P<label>[^\[\]\n]+)\]\((?P<url>{_URL})\)"
    rf"|<(?P<address>{_URL})>"
    r"|(?P<mention><(?:@[UW][A-Z0-9]{1,30}|\#[CG][A-Z0-9]{1,30})>)"
)
_PAIRS = (BOLD, BOLD2, STRIKE, ITALIC, ITALIC2)
_MARKS = {"b": "*", "b2": "*", "s": "~", "i": "_", "i2": "_"}


def render(markdown: str) -> str:
    """The mrkdwn of a message. Marks around nothing are shown as they are: Slack takes no empty text."""
    rendered = _blocks(markdown)
    return rendered if rendered.strip() else escape(markdown)


def _blocks(markdown: str) -> str:
    lines, done, at = markdown.split("\n"), list[str](), 0
    while at < len(lines):
        if fence := _FENCE.fullmatch(lines[at]):
            end = _end_of_code(lines, at + 1, fence[1])
            code = escape("\n".join(lines[at + 1 : end]))
            done.append(f"```\n{code}\n```" if code.strip() and end < len(lines) else _unfinished(code))
            at = end + 1
        else:
            done.append(_line(lines[at]))
            at += 1
    return "\n".join(done)


def link(url: str, label: str) -> str:
    """An address that is shown as its label."""
    shown = escape(label.replace("|", "¦").replace("\n", " "))
    return f"<{_address(url)}|{shown}>"


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unfinished(code: str) -> str:
    """A block without an end: to close it would make the text longer than it was."""
    return f"```\n{code}" if code.strip() else code


def _line(line: str) -> str:
    if quotes := _QUOTES.match(line):
        return quotes[0] + _unquoted(line[quotes.end() :])
    return _unquoted(line)


def _unquoted(line: str) -> str:
    if (heading := heading_in(line)) is not None:
        return f"*{_inline(heading, _DEPTH, 'b')}*"
    return _inline(_BULLET.sub(r"\1• ", line, count=1) if _BULLET.match(line) else line, _DEPTH)


def _inline(text: str, depth: int, *within: str) -> str:
    if not depth:
        return escape(text)
    done, at = [], 0
    for span in Spans(text, _PAIRS, _OTHER):
        done += [escape(text[at : span.start]), _span(span, text, depth - 1, within)]
        at = span.end
    return "".join([*done, escape(text[at:])])


def _span(span: Span, text: str, depth: int, within: tuple[str, ...]) -> str:
    match span.kind:
        case "code":
            return escape(text[span.start : span.end]) if "`" in span.inner else f"`{escape(span.inner)}`"
        case "link":
            return link(span.url, span.inner)
        case "address":
            return f"<{_address(span.inner)}>"
        case "mention":
            return span.inner
    style = span.kind.rstrip("2")
    inner = _inline(span.inner, depth, *within, style)
    if style in within:
        return inner
    mark = _MARKS[span.kind]
    if span.end - span.start - len(span.inner) < 4:  # single marks: Markdown too wants them at the edge of a word
        return f"{mark}{inner}{mark}"
    before = _APART if text[max(span.start - 1, 0) : span.start].isalnum() else ""
    after = _APART if text[span.end : span.end + 1].isalnum() else ""
    return f"{before}{mark}{inner}{mark}{after}"


def _address(url: str) -> str:
    return escape(url).replace("|", "%7C")


def _end_of_code(lines: list[str], start: int, mark: str) -> int:
    for n in range(start, len(lines)):
        if len(closing := lines[n].strip()) >= len(mark) and not closing.strip("`"):
            return n
    return len(lines)

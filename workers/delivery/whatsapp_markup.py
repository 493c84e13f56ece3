"""Markdown rendered with the marks that WhatsApp knows: *bold* _italic_ ~struck~ `code`, lists and quotations.

WhatsApp has no way to escape a mark, so marks that a text happens to contain may style it. No word is lost: a link is its
label and its address. Where the result would be empty, or longer than WhatsApp takes, the text stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.platforms.facts import Limit
from workers.delivery.markdown import BlockForm, Inline, Line, Style, parse

_MARKS = {Style.BOLD: "*", Style.ITALIC: "_", Style.STRIKE: "~", Style.CODE: "`"}


def render(markdown: str, limit: Limit) -> str:
    """The text of a message, within the limit if the Markdown is."""
    rendered = "\n".join(_line(line) for line in parse(markdown))
    return rendered if limit.measure(rendered) <= limit.units and rendered.strip() else markdown


def _line(line: Line) -> str:
    if line.form is BlockForm.CODE:
        code = "".join(piece for piece in line.content if isinstance(piece, str))
        return f"```{code}```" if code.strip() else code
    if line.form is BlockForm.HEADING:
        return f"*{_inline(line.content, (Style.BOLD,))}*"
    said = _inline(line.content)
    return f"{line.before}- {said}" if line.form is BlockForm.BULLET else line.before + said


def _inline(pieces: Iterable[Inline], within: tuple[Style, ...] = ()) -> str:
    """A style within itself gets no second mark: it would end the first."""
    done = []
    for piece in pieces:
        if isinstance(piece, str):
            done.append(piece)
            continue
        inner = _inline(piece.inner, (*within, piece.style))
        if piece.style is Style.LINK:
            done.append(inner if inner == piece.url else f"{inner} ({piece.url})")
        else:
            mark = _MARKS.get(piece.style, "") if piece.style not in within else ""
            done.append(f"{mark}{inner}{mark}")
    return "".join(done)

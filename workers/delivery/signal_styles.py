"""Markdown as plain text, and beside it which parts of it are bold, italic and so on, as Signal takes it.

Styles are ranges in UTF-16 units. No word is lost: a link is its label and its address. Where the result would be empty, or
longer than Signal shows in one piece, the text stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.platforms.facts import Limit, utf16_units
from shared.value import value
from workers.delivery.markdown import BlockForm, Inline, Style, parse

_NAMES = {
    Style.BOLD: "BOLD",
    Style.ITALIC: "ITALIC",
    Style.STRIKE: "STRIKETHROUGH",
    Style.SPOILER: "SPOILER",
    Style.CODE: "MONOSPACE",
}


@value
class StyledText:
    """Text without markup, and where which style holds, counted in UTF-16 units as Signal counts."""

    text: str
    styles: tuple[str, ...] = ()  # "start:length:STYLE"


def render(markdown: str, limit: Limit) -> StyledText:
    """The text of a message, within the limit if the Markdown is."""
    writing = _Writing()
    for n, line in enumerate(parse(markdown)):
        writing.write("\n" if n else "")
        writing.write(f"{line.before}- " if line.form is BlockForm.BULLET else line.before)
        began = writing.at
        writing.inline(line.content)
        if line.form in (BlockForm.CODE, BlockForm.HEADING):
            writing.style(began, Style.CODE if line.form is BlockForm.CODE else Style.BOLD)
    rendered = StyledText("".join(writing.done), tuple(writing.styles))
    fits = limit.measure(rendered.text) <= limit.units and rendered.text.strip()
    return rendered if fits else StyledText(markdown)


class _Writing:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.styles: list[str] = []
        self.at = 0

    def write(self, text: str) -> None:
        self.done.append(text)
        self.at += utf16_units(text)

    def inline(self, pieces: Iterable[Inline]) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self.write(piece)
                continue
            began, written = self.at, len(self.done)
            self.inline(piece.inner)
            if piece.style is not Style.LINK:
                self.style(began, piece.style)
            elif "".join(self.done[written:]) != piece.url:
                self.write(f" ({piece.url})")

    def style(self, began: int, style: Style) -> None:
        if self.at > began:
            self.styles.append(f"{began}:{self.at - began}:{_NAMES[style]}")

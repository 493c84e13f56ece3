"""Cuts a text into pieces that a platform takes: at paragraphs, else lines, else spaces, and only then anywhere.

Every piece stands alone: a code block that goes on in the next piece is closed and opened again, with its language. Pieces
end in ` (2/3)`. Nothing is lost but the white space at a cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shared.platforms.facts import Limit
from shared.value import value

_FENCE = re.compile(r" {0,3}(`{3,})[ \t]*([^\s`]{0,32})[^`\n]*")
_CUTS = ("\n\n", "\n", " ")
LONGEST_WORD = 40  # characters; more are cut in two


def split(text: str, limit: Limit) -> list[str]:
    """The pieces, each within the limit. A text that fits is its own only piece, without a number."""
    if limit.measure(text) <= limit.units:
        return [text]
    digits = 3
    while True:
        numbered = len(" (/)") + 2 * digits
        pieces = _pieces(text, limit.units - numbered, limit.measure)
        if len(pieces) < 10**digits:
            return [_numbered(piece, i, len(pieces)) for i, piece in enumerate(pieces, 1)]
        digits += 1


def _numbered(piece: str, i: int, n: int) -> str:
    apart = "\n" if piece.endswith("```") else " "  # anything behind a closing fence would open it again
    return f"{piece}{apart}({i}/{n})"


def _pieces(text: str, room: int, measure: Callable[[str], int]) -> list[str]:
    pieces: list[str] = []
    fence = _Fence()
    rest = text
    while rest:
        opening = fence.opening
        space = room - measure(opening)
        if len(rest) <= space and measure(rest) + measure(fence.after(rest).closing) <= space:
            pieces.append(_closed(opening + rest, fence.after(rest)))
            break
        near = rest[: space + 1]  # looking at no more of it keeps long texts from costing their square
        at = _cut(near, space - len("\n") - fence.longest(near), measure, fence)
        head, left = rest[:at], rest[at:]
        fence = fence.after(head)
        pieces.append(_closed(opening + head.rstrip("\n" if fence.mark else None), fence))
        rest = left.removeprefix("\n") if fence.mark else left.lstrip("\n").removeprefix(" ")
    return [piece for piece in pieces if piece]


def rest_of(text: str, shown: int) -> str:
    """The text behind its first `shown` characters, to be read after them: it begins with a whole word, and inside a code block
    with the mark that opens it. Empty where only white space is left."""
    head, rest = text[:shown], text[shown:]
    if not rest.strip():
        return ""
    if not head[-1:].isspace() and not rest[:1].isspace():
        word = max(head.rfind(" "), head.rfind("\n")) + 1
        if shown - word <= LONGEST_WORD:
            head, rest = head[:word], head[word:] + rest
    fence = _Fence().after(head)
    return fence.opening + (rest.removeprefix("\n") if fence.mark else rest.lstrip())


def _closed(piece: str, fence: _Fence) -> str:
    return piece + (fence.closing if not piece.endswith("\n") else fence.closing.removeprefix("\n"))


@value
class _Fence:
    """The code block that is open at some point of a text, if any."""

    mark: str = ""
    language: str = ""

    @property
    def opening(self) -> str:
        return f"{self.mark}{self.language}\n" if self.mark else ""

    @property
    def closing(self) -> str:
        return f"\n{self.mark}" if self.mark else ""

    def after(self, text: str) -> _Fence:
        """What is open at the end of `text`, when this is open at its beginning."""
        fence = self
        for line in text.split("\n"):
            found = _FENCE.fullmatch(line)
            if found is None:
                continue
            if not fence.mark:
                fence = _Fence(found[1], found[2])
            elif len(found[1]) >= len(fence.mark) and line.strip(" `\t") == "":
                fence = _Fence()
        return fence

    def longest(self, text: str) -> int:
        """Room for the mark that closes whatever a piece of `text` may leave open."""
        return max([len(self.mark), *(len(mark) for mark in re.findall(r"^ {0,3}(`{3,})", text, re.M))])


def _cut(text: str, space: int, measure: Callable[[str], int], fence: _Fence) -> int:
    """Where to cut: as late as the space allows, in the second half of it where there is a good place."""
    end = _longest(text, max(space, 1), measure)
    if end >= len(text):
        end = len(text) - 1  # there is room for it, but not for what closes it as well
    half = end // 2
    for separator in _CUTS:
        at = text.rfind(separator, half, end + 1)
        if at > 0:
            return _before_opening(text, _outside_code(text, at, half, fence), half, fence)
    return _outside_code(text, max(end, 1), half, fence)


def _longest(text: str, space: int, measure: Callable[[str], int]) -> int:
    """The most characters from the beginning that fit, by halving: measuring is what costs."""
    low, high = 1, min(len(text), space)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(text[:middle]) <= space else (low, middle - 1)
    return low


def _outside_code(text: str, at: int, half: int, fence: _Fence) -> int:
    """Not in the middle of `inline code`, if it begins late enough."""
    line = text.rfind("\n", 0, at) + 1
    if fence.after(text[:at]).mark or text.count("`", line, at) % 2 == 0:
        return at
    tick = text.rfind("`", line, at)
    return tick if tick > max(half, 0) else at


def _before_opening(text: str, at: int, half: int, fence: _Fence) -> int:
    """Not right behind the line that opens a code block: the block would begin empty."""
    line = text.rfind("\n", 0, at) + 1
    opens = _FENCE.fullmatch(text[line:at]) and fence.after(text[:at]).mark and not fence.after(text[:line]).mark
    return line if opens and line > half else at

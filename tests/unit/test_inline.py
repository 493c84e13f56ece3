"""The styled pieces of a line: those that a plain pattern finds, without its square of the line's length."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.delivery import inline, slack_mrkdwn, telegram_html
from workers.delivery.markdown import DEPTH, heading_in, parse, spans

# What counts as a styled piece, said in one pattern: easy to read, and slow where marks open that never close.
PLAIN = re.compile(
    r"(?<!`)(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()<>\"]+(?:\([^\s()<>\"]*\)[^\s()<>\"]*)*)\)"
    r"|\*\*(?P<b>(?=\S).+?(?<=\S))\*\*"
    r"|(?<!\w)__(?P<b2>(?=\S).+?(?<=\S))__(?!\w)"
    r"|~~(?P<s>(?=\S).+?(?<=\S))~~"
    r"|\|\|(?P<spoiler>(?=\S).+?(?<=\S))\|\|"
    r"|(?<![\w*])\*(?P<i>(?=[^\s*]).+?(?<=[^\s*]))\*(?![\w*])"
    r"|(?<!\w)_(?P<i2>(?=[^\s_]).+?(?<=[^\s_]))_(?!\w)"
)
PLAIN_HEADING = re.compile(r"#{1,6} +(.+?)[ #]*")
PIECES = st.sampled_from(
    ["*", "**", "_", "__", "~~", "||", "`", "``", "a", "é", " ", "[", "](http://x.y/(z))", "!", "<"]
)
LONG = 4000
ENDLESS = ["*a ", "**a ", "_a ", "__a ", "~~a ", "||a ", "`a ``", "[a", "[a](http://x", "<http://x", "*a **b _c ~~d "]


def expected(found: re.Match[str]) -> tuple[str, int, int, str]:
    kind = next(name for name in ("code", "url", "b", "b2", "s", "spoiler", "i", "i2") if found[name] is not None)
    return ("link" if kind == "url" else kind, found.start(), found.end(), found["label" if kind == "url" else kind])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_the_pieces_are_those_that_the_plain_pattern_finds(line: str) -> None:
    found = [(span.kind, span.start, span.end, span.inner) for span in spans(line)]
    assert found == [expected(match) for match in PLAIN.finditer(line)]


@given(st.text(alphabet="# a*", max_size=20))
def test_a_heading_is_what_the_plain_pattern_finds(line: str) -> None:
    found = PLAIN_HEADING.fullmatch(line)
    assert heading_in(line) == (found[1] if found is not None else None)


@pytest.mark.parametrize("mark", ENDLESS)
def test_marks_that_never_close_are_looked_for_once_in_a_line_and_not_once_each(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, begun = 0, 0
    places, at = inline._places, inline.Spans._at

    def counted_places(closing: re.Pattern[str], line: str) -> list[int]:
        nonlocal scanned
        scanned += len(line)
        return places(closing, line)

    def counted_at(self: inline.Spans, start: int) -> inline.Span | None:
        nonlocal begun
        begun += 1
        return at(self, start)

    monkeypatch.setattr(inline, "_places", counted_places)
    monkeypatch.setattr(inline.Spans, "_at", counted_at)
    text = mark * (LONG // len(mark))
    parse(text)
    slack_mrkdwn.render(text)
    telegram_html.render(text)
    assert scanned <= 3 * DEPTH * 6 * len(text)  # three renderers, as many levels, six kinds of marks
    assert 0 < begun <= 3 * DEPTH * len(text)

"""Markdown becomes plain text with styled ranges, whatever a model wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.platforms.facts import Limit, utf8_bytes, utf16_units
from workers.delivery.signal_styles import StyledText, render

LIMIT = Limit(2000, utf8_bytes)
PIECES = st.sampled_from(
    ["**", "*", "_", "~~", "||", "`", "```", "\n", "# ", "> ", "- ", "a", "🙂", " ", "[x](https://x.org)"]
)


@pytest.mark.parametrize(
    ("markdown", "text", "styles"),
    [
        ("plain", "plain", ()),
        (
            "**bold** *it* ~~no~~ ||s|| `c`",
            "bold it no s c",
            ("0:4:BOLD", "5:2:ITALIC", "8:2:STRIKETHROUGH", "11:1:SPOILER", "13:1:MONOSPACE"),
        ),
        ("🙂 **b**", "🙂 b", ("3:1:BOLD",)),
        ("**a _b_**", "a b", ("2:1:ITALIC", "0:3:BOLD")),
        ("# Title\ntext", "Title\ntext", ("0:5:BOLD",)),
        ("* one\n  + two", "- one\n  - two", ()),
        ("> said **so**", "> said so", ("7:2:BOLD",)),
        ("```py\nx = 1\n```\nafter", "x = 1\nafter", ("0:5:MONOSPACE",)),
        ("[docs](https://x.org)", "docs (https://x.org)", ()),
        ("[https://x.org](https://x.org)", "https://x.org", ()),
        ("```\n```", "```\n```", ()),
    ],
)
def test_markdown_is_shown_as_signal_shows_it(markdown: str, text: str, styles: tuple[str, ...]) -> None:
    assert render(markdown, LIMIT) == StyledText(text, styles)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_word_is_lost_and_every_range_lies_within_the_text(markdown: str) -> None:
    limit = Limit(max(utf8_bytes(markdown), 1), utf8_bytes)
    found = render(markdown, limit)
    assert utf8_bytes(found.text) <= limit.units
    words = re.findall(r"🙂|https://x.org", markdown)
    assert re.findall(r"🙂|https://x.org", found.text) == words
    for style in found.styles:
        start, length, _ = style.split(":")
        assert int(length) > 0 and int(start) + int(length) <= utf16_units(found.text)

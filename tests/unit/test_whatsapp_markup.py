"""Markdown becomes the marks that WhatsApp knows, whatever a model wrote."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.platforms.facts import Limit, utf16_units
from workers.delivery.whatsapp_markup import render

LIMIT = Limit(4096, utf16_units)
PIECES = st.sampled_from(
    ["**", "*", "_", "__", "~~", "||", "`", "```", "\n", "# ", "> ", "- ", "a", "🙂", " ", "[x](https://x.org)"]
)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("plain", "plain"),
        ("**bold** and __bold__", "*bold* and *bold*"),
        ("*it* and _it_", "_it_ and _it_"),
        ("~~gone~~ ||secret||", "~gone~ secret"),
        ("**a _b_ c**", "*a _b_ c*"),
        ("`a **b**` and ``a ` b``", "`a **b**` and `a ` b`"),
        ("[docs](https://x.org/?a=1&b=2)", "docs (https://x.org/?a=1&b=2)"),
        ("[https://x.org](https://x.org)", "https://x.org"),
        ("[**x**](http://x.org)", "*x* (http://x.org)"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("# Title #", "*Title*"),
        ("## A **bold** title", "*A bold title*"),
        ("- one\n* two\n  + three", "- one\n- two\n  - three"),
        ("> quoted **text**\nafter", "> quoted *text*\nafter"),
        ("```python\n**x**\ny\n```", "```**x**\ny```"),
        ("```sh make\nx\n```", "```make\nx```"),
        ("```\n```", "```\n```"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
    ],
)
def test_markdown_is_shown_with_whatsapps_marks(markdown: str, shown: str) -> None:
    assert render(markdown, LIMIT) == shown


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_word_is_lost(markdown: str) -> None:
    words = re.findall(r"🙂|https://x.org", markdown)
    assert re.findall(r"🙂|https://x.org", render(markdown, LIMIT)) == words


@given(st.lists(PIECES, max_size=40).map("".join))
def test_what_was_cut_to_the_limit_stays_within_it(markdown: str) -> None:
    limit = Limit(max(utf16_units(markdown), 1), utf16_units)
    assert utf16_units(render(markdown, limit)) <= limit.units


def test_hostile_text_takes_no_long_time() -> None:
    began = time.process_time()
    for text in ("*" * 4096, "_a" * 2048, "[" * 4096, "`" * 4096, "||a" * 1365, "~~" * 2048):
        render(text, LIMIT)
    assert time.process_time() - began < 5

"""Markdown becomes HTML that Telegram takes, whatever a model wrote."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.telegram_html import parse_html, units
from workers.delivery.telegram_html import ENTITY_LIMIT, render


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("plain", "plain"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ('"quoted"', '"quoted"'),
        ("**bold** and __bold__", "<b>bold</b> and <b>bold</b>"),
        ("*it* and _it_", "<i>it</i> and <i>it</i>"),
        ("~~gone~~ ||secret||", "<s>gone</s> <tg-spoiler>secret</tg-spoiler>"),
        ("**a _b_ c**", "<b>a <i>b</i> c</b>"),
        ("`a < **b**`", "<code>a &lt; **b**</code>"),
        ("``a ` b``", "<code>a ` b</code>"),
        ("[x](https://x.org/?a=1&b=2)", '<a href="https://x.org/?a=1&amp;b=2">x</a>'),
        ("[x](https://en.org/a_(b))", '<a href="https://en.org/a_(b)">x</a>'),
        ("[**x**](http://x.org)", '<a href="http://x.org"><b>x</b></a>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ('[x](https://x.org/"onclick)', '[x](https://x.org/"onclick)'),
        ("[x](https://x.org/it's)", '<a href="https://x.org/it\'s">x</a>'),
        ("# Title #", "<b>Title</b>"),
        ("- one\n* two\n  + three", "• one\n• two\n  • three"),
        ("> quoted **text**\n> more\nafter", "<blockquote>quoted <b>text</b>\nmore</blockquote>\nafter"),
        ("```\na < b\n```", "<pre>a &lt; b</pre>"),
        ("```python\n**x**\n```", '<pre><code class="language-python">**x**</code></pre>'),
        ("````\n```\n````", "<pre>```</pre>"),
        ("```js\nnever closed", '<pre><code class="language-js">never closed</code></pre>'),
        ("```\n```", ""),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case_name and file_a_b.py", "snake_case_name and file_a_b.py"),
        ("**not closed", "**not closed"),
        ("** spaced **", "** spaced **"),
        ("a**b\nc**d", "a**b\nc**d"),
        ("<b>html</b> <script>", "&lt;b&gt;html&lt;/b&gt; &lt;script&gt;"),
        ("&amp;", "&amp;amp;"),
    ],
)
def test_markdown_becomes_html(markdown: str, html: str) -> None:
    assert render(markdown) == html


PIECES = [
    "*",
    "**",
    "_",
    "__",
    "`",
    "```",
    "~~",
    "||",
    "[",
    "](https://x)",
    "\n",
    " ",
    "a",
    "<",
    "&",
    '"',
    "> ",
    "# ",
    "- ",
    "🙂",
]


@given(st.lists(st.sampled_from(PIECES), max_size=80).map("".join))
def test_whatever_is_written_telegram_can_parse_it_and_sees_no_more_text_than_was_written(markdown: str) -> None:
    text, entities = parse_html(render(markdown))
    assert units(text) <= units(markdown)
    assert len(entities) <= ENTITY_LIMIT


@given(st.text(max_size=200))
def test_any_text_at_all_can_be_parsed(markdown: str) -> None:
    parse_html(render(markdown))


def test_no_more_entities_than_telegram_takes_and_no_marks_left_over() -> None:
    text, entities = parse_html(render("**a** " * 150 + "[x](https://x.org)"))
    assert len(entities) == ENTITY_LIMIT
    assert text == "a " * 150 + "[x](https://x.org)"


@pytest.mark.parametrize(
    "markdown",
    [
        "_*" * 1000 + "x" + "*_" * 1000,
        "**a " * 700 + "[" * 700 + "`" * 500,
        "[" * 4096,
        "[a](https://x" * 300,
        "`" * 4095 + "x",
        "~~||" * 1000,
        "> " * 2000,
        "* " * 2000,
    ],
    ids=lambda text: text[:6],
)
def test_deep_nesting_and_long_lines_end_in_time(markdown: str) -> None:
    """What one message can hold costs well under a second of processor time; the limit leaves room for slow machines."""
    begun = time.process_time()
    html = render(markdown[:4096])
    assert time.process_time() - begun < 5
    parse_html(html)

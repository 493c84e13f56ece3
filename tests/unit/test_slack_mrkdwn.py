"""Markdown as Slack shows it: no text calls a channel, nothing is lost, and nothing gets longer than it was measured."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.models.blocks import MarkdownTextObject, SectionBlock

from shared.platforms.facts import utf16_units
from shared.platforms.slack import FACTS, escaped_units
from workers.delivery.slack_mrkdwn import link, render
from workers.delivery.split import split

_OURS = re.compile(r"<(?:@[UW][A-Z0-9]+|#[CG][A-Z0-9]+|https?://[^<>]*)>")


@pytest.mark.parametrize(
    ("markdown", "mrkdwn"),
    [
        ("plain", "plain"),
        ("**bold** and __bold__", "*bold* and *bold*"),
        ("*italic* and _italic_", "_italic_ and _italic_"),
        ("~~gone~~", "~gone~"),
        ("**bold *and italic* text**", "*bold _and italic_ text*"),
        ("un**believ**able", "un\u200b*believ*\u200bable"),
        ("# Title", "*Title*"),
        ("### Title ###", "*Title*"),
        ("# A **bold** title", "*A bold title*"),
        ("- one\n* two\n  + three", "• one\n• two\n  • three"),
        ("1. one", "1. one"),
        ("> quoted **text**", "> quoted *text*"),
        ("[docs](https://x.org/?a=1&b=2)", "<https://x.org/?a=1&amp;b=2|docs>"),
        ("![chart](https://x.org/a.png)", "<https://x.org/a.png|chart>"),
        ("<https://x.org/a_b>", "<https://x.org/a_b>"),
        ("[no](javascript:alert(1))", "[no](javascript:alert(1))"),
        ("[a|b](https://x.org)", "<https://x.org|a¦b>"),
        ("run `a < b` & go", "run `a &lt; b` &amp; go"),
        ("``a`b``", "``a`b``"),
        ("```py\n```", "```py\n```"),
        ("```py\nif a < b: **x**\n```", "```\nif a &lt; b: **x**\n```"),
        ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
        ("<@U02BOB> in <#C01GEN>", "<@U02BOB> in <#C01GEN>"),
        ("<!channel> <!here> <!subteam^S1>", "&lt;!channel&gt; &lt;!here&gt; &lt;!subteam^S1&gt;"),
        ("<@U02BOB|channel> <@everyone>", "&lt;@U02BOB|channel&gt; &lt;@everyone&gt;"),
        ("`<@U02BOB>`", "`&lt;@U02BOB&gt;`"),
    ],
)
def test_markdown_is_rendered_as_slack_writes_it(markdown: str, mrkdwn: str) -> None:
    assert render(markdown) == mrkdwn


def test_a_link_cannot_be_left_by_its_label_or_its_address() -> None:
    assert link("https://x.org/a|b>c", "x|<!channel>") == "<https://x.org/a%7Cb&gt;c|x¦&lt;!channel&gt;>"


MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            ["**", "*", "_", "__", "~~", "`", "```", "\n", "# ", "> ", "- ", "[a](https://x.org)", "<", ">", "&"]
        ),
        st.sampled_from(["<!channel>", "<@U1>", "<https://a.b|c>", "[", "](http://x", ")", "|", "😀"]),
        st.text(max_size=6),
    ),
    max_size=25,
).map("".join)


@given(MARKDOWN)
def test_whatever_a_model_writes_calls_nobody_but_the_people_it_names(markdown: str) -> None:
    assert re.search("[<>]", _without_quotes(_OURS.sub("", render(markdown)))) is None


def _without_quotes(mrkdwn: str) -> str:
    """The marks of quotes are the only ones that stand alone."""
    return re.sub(r"^(?:> ?)+", "", mrkdwn, flags=re.M)


@given(MARKDOWN)
def test_what_is_rendered_is_never_longer_than_it_was_measured(markdown: str) -> None:
    assert utf16_units(render(markdown)) <= escaped_units(markdown)


@given(st.text(alphabet="ab &<>*\n😀`", min_size=3000, max_size=6000))
def test_every_piece_of_a_long_reply_fits_after_it_was_rendered(text: str) -> None:
    assert FACTS.text_limit is not None
    for piece in split(text, FACTS.text_limit):
        assert utf16_units(render(piece)) <= 4000


@given(MARKDOWN.filter(str.strip))
def test_slacks_library_takes_what_is_rendered(markdown: str) -> None:
    text = render(markdown)
    if 0 < len(text) <= 3000:
        SectionBlock(text=MarkdownTextObject(text=text)).validate_json()


def test_quotes_within_quotes_are_rendered_however_many_there_are() -> None:
    assert render(">" * 4000 + " **deep**") == ">" * 4000 + " *deep*"

"""What a text in Markdown is read as, before any platform's own form is made of it."""

from __future__ import annotations

import pytest

from workers.delivery.markdown import DEPTH, BlockForm, Inline, Line, Style, Styled, parse


def text(*content: Inline) -> Line:
    return Line(BlockForm.TEXT, content)


@pytest.mark.parametrize(
    ("markdown", "lines"),
    [
        ("", [text()]),
        ("plain", [text("plain")]),
        ("**a**", [text(Styled(Style.BOLD, ("a",)))]),  # nothing stands before or behind it
        ("a **b** c", [text("a ", Styled(Style.BOLD, ("b",)), " c")]),
        ("**a _b_**", [text(Styled(Style.BOLD, ("a ", Styled(Style.ITALIC, ("b",)))))]),
        ("`**a**`", [text(Styled(Style.CODE, ("**a**",)))]),
        ("[**a**](http://x.y)", [text(Styled(Style.LINK, (Styled(Style.BOLD, ("a",)),), "http://x.y"))]),
        ("# **a** #", [Line(BlockForm.HEADING, (Styled(Style.BOLD, ("a",)),))]),
        ("> **a**", [Line(BlockForm.QUOTE, (Styled(Style.BOLD, ("a",)),), "> ")]),
        ("  - **a**", [Line(BlockForm.BULLET, (Styled(Style.BOLD, ("a",)),), "  ")]),
        ("```\n**a**\n```", [Line(BlockForm.CODE, ("**a**",))]),
        ("```python x = 1\ny\n```\nz", [Line(BlockForm.CODE, ("x = 1\ny",)), text("z")]),  # words behind the language
        ("````\n```\n````", [Line(BlockForm.CODE, ("```",))]),  # a shorter mark closes nothing
        ("```\na", [Line(BlockForm.CODE, ("a",))]),
    ],
)
def test_a_text_is_read_line_by_line_with_its_styles(markdown: str, lines: list[Line]) -> None:
    assert parse(markdown) == lines


def test_styles_within_styles_are_read_as_deep_as_anybody_writes_them_and_no_deeper() -> None:
    """However deep a hostile text nests, it costs no more."""
    markdown, deepest = "*a*", "*a*"
    for mark in ("__", "||", "~~", "_", "**"):
        markdown = f"{mark}x {markdown} x{mark}"
    [line] = parse(f"[{markdown}](http://x.y)")
    levels, content = 0, line.content
    while styled := [piece for piece in content if isinstance(piece, Styled)]:
        levels, content = levels + 1, styled[0].inner
    assert levels == DEPTH and "".join(map(str, content)) == f"x {deepest} x"

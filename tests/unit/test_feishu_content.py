"""Replies as Feishu takes them: no word is lost, and nobody is called but the people whom a reply names."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Transient
from shared.platforms.feishu import FACTS, written_bytes
from workers.delivery.feishu_content import harmless, link, plain, rich, uploaded


def shown(markdown: str) -> str:
    content: dict[str, Any] = orjson.loads(rich(markdown)["content"])
    [[element]] = content["zh_cn"]["content"]
    assert element["tag"] == "md"
    return str(element["text"])


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("hello **you** and `code`", "hello **you** and `code`"),
        ("# Plan\ntext", "**Plan**\ntext"),
        ("### Plan ##", "**Plan**"),
        ("# **Plan**", "# **Plan**"),
        ("#hashtag", "#hashtag"),
        ("```py\n# comment\n![a](b)\n```\n# After", "```py\n# comment\n![a](b)\n```\n**After**"),
        ("![chart](https://x.org/a.png)", "[chart](https://x.org/a.png)"),
        ("![](https://x.org/a.png)", "[picture](https://x.org/a.png)"),
        ("`![a](b)`", "`![a](b)`"),
    ],
)
def test_markdown_is_as_feishu_knows_it(markdown: str, text: str) -> None:
    assert shown(markdown) == text


@pytest.mark.parametrize(
    "text",
    [
        '<at user_id="all">all</at>',
        "<at id=all></at>",
        '<AT user_id="all">',
        "< at user_id='all'>",
        "<\nat id=all>",
        '<at user_id="ou_1" id="all">x</at>',
        '<at user_id="ou_1"><at user_id="all"></at></at>',
        "<at email=a@b.c></at>",
    ],
)
def test_nothing_calls_a_whole_chat(text: str) -> None:
    for said in (shown(text), orjson.loads(plain(text)["content"])["text"]):
        assert not re.search(r"<[\s/]*at\b(?! user_id=\"ou_1\">)", re.sub(r"</at>", "", said), re.I)
        assert said.replace("\u200b", "") == text


@given(st.text("<at >/\"'=userid_oul1\n", max_size=80))
def test_whatever_a_model_writes_calls_nobody_but_people_by_open_id(text: str) -> None:
    said = harmless(text)
    assert said.replace("\u200b", "") == text.replace("\u200b", "")
    rest = re.sub(r'<at user_id="ou_[A-Za-z0-9_-]{1,64}">[^<>]*</at>', "", said)
    assert not re.search(r"<[\s/]*at\b", rest, re.I)


def test_one_person_can_be_mentioned() -> None:
    text = 'ask <at user_id="ou_bob">Bob</at>, not <at user_id="all">all</at>'
    assert 'ask <at user_id="ou_bob">Bob</at>, not <\u200bat' in shown(text)


@pytest.mark.parametrize("data", [{}, {"file_key": None}, {"file_key": ""}, {"file_key": 5}])
def test_an_upload_whose_key_feishu_does_not_say_is_tried_again(data: dict[str, Any]) -> None:
    with pytest.raises(Transient):
        uploaded("file", "file_key", data)


def test_an_upload_is_sent_by_its_key() -> None:
    assert orjson.loads(uploaded("file", "file_key", {"file_key": "k1"})["content"]) == {"file_key": "k1"}


def test_a_link_shows_its_label_as_it_is() -> None:
    [[element]] = orjson.loads(link("https://x.org/?a=1&b=2", "<at id=all> **a**")["content"])["zh_cn"]["content"]
    assert element == {"tag": "a", "href": "https://x.org/?a=1&b=2", "text": "<at id=all> **a**"}


@given(st.text(max_size=200))
def test_the_measure_is_never_less_than_what_is_written(text: str) -> None:
    bare = len(orjson.dumps(plain("")))
    assert len(orjson.dumps(plain(text))) - bare <= written_bytes(text)


@given(st.text(max_size=50), st.text(max_size=50))
def test_two_texts_measure_together_what_they_do_apart(one: str, other: str) -> None:
    assert FACTS.text_limit is not None
    assert FACTS.text_limit.measure(one + other) == FACTS.text_limit.measure(one) + FACTS.text_limit.measure(other)

"""Targets: what each text form means, and what is none."""

from __future__ import annotations

import pytest

from shared.errors import Malformed
from shared.targets import TARGETS_LIMIT, Target, TargetKind, parse_targets


def test_T1_a_platform_and_a_chat_mean_that_chat() -> None:
    assert Target.parse("telegram:12345") == Target(TargetKind.CHAT, "telegram", "", "12345")
    assert Target.parse("telegram:-100:17") == Target(TargetKind.CHAT, "telegram", "", "-100", "17")
    assert Target.parse("telegram@work:42") == Target(TargetKind.CHAT, "telegram", "work", "42")


def test_T5_a_platform_alone_means_its_home_channel() -> None:
    assert Target.parse("telegram") == Target(TargetKind.HOME, "telegram")


def test_T6_the_platform_ignores_case_and_the_id_keeps_it() -> None:
    assert Target.parse("slack:C123ABC").chat == "C123ABC"
    assert Target.parse("TELEGRAM:1") == Target.parse("telegram:1")
    assert Target.parse("Origin").kind is TargetKind.ORIGIN


def test_T9_spaces_around_a_target_are_ignored() -> None:
    assert Target.parse("  telegram:1\n") == Target.parse("telegram:1")
    assert Target.parse(" local ").kind is TargetKind.FILE


def test_a_colon_stands_in_an_id_where_a_platform_has_no_threads() -> None:
    assert Target.parse("signal:group:abc=").chat == "group:abc="
    assert Target.parse("telegram:a%3Ab").chat == "a:b"


@pytest.mark.parametrize(
    "text",
    [
        "origin",
        "local",
        "slack",
        "slack:C1",
        "slack:C1:17.5",
        "signal:group:ab/c=",
        "telegram@a%3Ab:1:2",
        "telegram:a%3Ab",
    ],
)
def test_a_target_is_read_back_as_the_same(text: str) -> None:
    target = Target.parse(text)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere",
        "nowhere:1",
        "telegram:",
        "telegram::1",
        "telegram:1:",
        "telegram:a%00b",
        f"telegram:{'x' * 300}",
        ":1",
    ],
)
def test_what_names_no_place_is_no_target(text: str) -> None:
    with pytest.raises(Malformed):
        Target.parse(text)


def test_targets_are_counted_once_each_and_bounded() -> None:
    assert parse_targets(["telegram:1", " TELEGRAM:1", "local"]) == (Target.parse("telegram:1"), Target.parse("local"))
    for texts in ([], [f"telegram:{n}" for n in range(TARGETS_LIMIT + 1)]):
        with pytest.raises(Malformed):
            parse_targets(texts)

"""Who may act on a running turn, and what is read of the messages behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.busy import BusyMode, same_speaker, steering_words
from shared.lane.lease import Waiting
from shared.mail import TakeNotes, encode_mail
from shared.messages import Inbound, Kind, Mail, Media, OwnInbound, Source, Terms
from shared.store.commit_rows import in_line
from workers.turn.album import as_one
from workers.turn.busy.behind import companions

HERE = Source("webhook", "c1", chat_type="group", user="ann")


def said(text: str, source: Source = HERE, **about: Any) -> Inbound:
    return Inbound(f"in_{text}", text, source, text, received_at=1, **about)


def behind(*contents: Inbound | TakeNotes | bytes, may_steer: bool = True) -> list[tuple[str, bool]]:
    """What the running turn may take of these, which wait in this order."""
    waiting = [Waiting(1, encode_mail(said("running")))]
    for seq, content in enumerate(contents, 2):
        waiting.append(Waiting(seq, content if isinstance(content, bytes) else encode_mail(content)))
    found = companions((Mail(1, said("running")),), waiting, lambda *_: may_steer)
    return [(one.said.text, one.is_steer) for one in found]


@pytest.mark.parametrize(
    "change",
    [{"user": "bob"}, {"thread": "7"}, {"chat": "c2"}, {"platform": "api"}, {"account": "b"}, {"scope": "s"}],
)
def test_another_person_or_place_is_another_speaker(change: dict[str, str]) -> None:
    assert same_speaker(said("a"), said("b")) and not same_speaker(said("a"), said("b", replace(HERE, **change)))


def test_people_who_cannot_be_told_apart_are_not_the_same_but_in_a_direct_chat() -> None:
    nobody = replace(HERE, user=None)
    assert not same_speaker(said("a", nobody), said("b", nobody))
    assert same_speaker(said("a", replace(nobody, chat_type="dm")), said("b", replace(nobody, chat_type="dm")))


@pytest.mark.parametrize(
    ("text", "words"),
    [("/steer left", "left"), (" /STEER@bot a b ", "a b"), ("/steer", None), ("steer left", None), ("/new", None)],
)
def test_the_words_of_steer(text: str, words: str | None) -> None:
    assert steering_words(text) == words


def test_what_others_and_nobody_said_is_passed_over() -> None:
    bob = replace(HERE, user="bob")
    due = OwnInbound("in_due", "due", HERE, "due", purpose=Kind.FIRE)
    found = behind(said("one"), said("of bob", bob), due, TakeNotes("ses_1"), said("two"))
    assert found == [("one", False), ("two", False)]


def test_N76_empty_messages_are_passed_over() -> None:
    assert behind(said(" "), said("one")) == [("one", False)]


@pytest.mark.parametrize(
    "barrier",
    [
        said("/new"),
        said("/new", replace(HERE, user="bob")),
        said("x", terms=Terms(instructions="be brief")),
        b"garbage",
    ],
)
def test_nothing_overtakes_a_command_or_what_cannot_be_read(barrier: Inbound | bytes) -> None:
    assert behind(said("one"), barrier, said("two"), said("/steer left")) == [("one", False)]


def test_steer_is_for_those_who_may_give_it() -> None:
    assert behind(said("/steer left"), said("two")) == [("left", True), ("two", False)]
    assert behind(said("/steer left"), said("two"), may_steer=False) == []


def test_Q8_messages_that_are_collected_keep_all_their_texts_and_media() -> None:
    photo, plan = Media("https://x/a.png", "image/png"), Media("https://x/b.pdf", "application/pdf")
    rest = [Mail(2, said("", media=(photo,))), Mail(3, said("two", media=(plan,)))]
    one = as_one(said("one"), rest, between="\n\n")
    assert (one.id, one.text, one.media) == ("in_one", "one\n\ntwo", (photo, plan))


def test_mail_counts_as_done_up_to_the_first_gap() -> None:
    assert [in_line([Mail(n, said("x")) for n in seqs]) for seqs in ([], [4], [4, 5], [6, 4, 5, 8], [4, 9])] == [
        0,
        4,
        5,
        6,
        4,
    ]


def test_a_mode_is_known_by_its_name_only() -> None:
    assert BusyMode.named("steer") is BusyMode.STEER
    assert [BusyMode.named(name) for name in ("", "fast", None, 7, "STEER")] == [None] * 5

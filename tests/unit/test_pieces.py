"""Which messages of a group count as sent with others, decided from what came so far."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producers.pieces import MessagePiece, chain_with
from shared.messages import Inbound, Source
from shared.pieces import APART_MS, AT_MOST, belong_together

CUT, END = (
    MessagePiece("1", 1000, goes_on=True, addressed=False),
    MessagePiece("2", 1000, goes_on=False, addressed=False),
)
GROUP = Source("telegram", "-1", "group", user="11", thread="5")


def ids(chain: tuple[MessagePiece, ...] | None) -> list[str] | None:
    return None if chain is None else [piece.id for piece in chain]


def test_a_short_message_by_itself_is_no_piece() -> None:
    assert chain_with((), END, of_album=False) is None


def test_a_message_that_may_go_on_begins_and_what_follows_it_at_once_belongs_to_it() -> None:
    assert ids(chain_with((), CUT, of_album=False)) == ["1"]
    assert ids(chain_with((CUT,), END, of_album=False)) == ["1", "2"]


@pytest.mark.parametrize(("later", "belongs"), [(APART_MS, True), (APART_MS + 1, False), (-APART_MS - 1, False)])
def test_the_rest_of_a_text_comes_at_once_and_a_photo_of_an_album_at_any_time(later: int, belongs: bool) -> None:
    new = replace(END, said_at=1000 + later)
    assert (chain_with((CUT,), new, of_album=False) is not None) is belongs
    assert ids(chain_with((CUT,), new, of_album=True)) == ["1", "2"]


def test_a_text_that_came_to_its_end_has_no_further_pieces() -> None:
    third = replace(CUT, id="3")
    assert chain_with((CUT, END), replace(END, id="3"), of_album=False) is None
    assert ids(chain_with((CUT, END), third, of_album=False)) == ["3"]


def test_a_piece_that_comes_again_changes_nothing_whenever_it_comes() -> None:
    again = replace(END, said_at=10**9)
    assert chain_with((CUT, END), again, of_album=False) == (CUT, END)


def test_no_more_pieces_are_held_than_any_album_has_and_an_addressed_one_always_finds_room() -> None:
    full = tuple(replace(CUT, id=f"p{n}") for n in range(AT_MOST))
    assert chain_with(full, replace(CUT, id="x"), of_album=True) == full
    found = chain_with(full, replace(CUT, id="x", addressed=True), of_album=True)
    assert found is not None and ids(found[-1:]) == ["x"] and found[:-1] == full
    assert chain_with(found, replace(CUT, id="y", addressed=True), of_album=True) == found


def said(**changes: object) -> Inbound:
    return replace(Inbound("in_1", "1", GROUP, "a" * 4096, sent_at=1000), **changes)  # type: ignore[arg-type]


def test_pieces_belong_together_by_the_ids_of_their_speaker_whatever_they_are_called() -> None:
    renamed = replace(GROUP, topic="plans", user_name="Ann", chat_name="Ops")
    assert belong_together(said(), said(source=renamed, text="end"))
    assert belong_together(said(album="a"), said(source=renamed, album="a"))
    for other in ({"user": "12"}, {"chat": "-2"}, {"thread": None}, {"account": "b"}, {"user_alt": "x"}):
        elsewhere = replace(GROUP, **other)
        assert not belong_together(said(), said(source=elsewhere, text="end"))
        assert not belong_together(said(album="a"), said(source=elsewhere, album="a"))

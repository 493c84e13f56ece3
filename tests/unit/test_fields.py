"""Reading a platform's JSON: each reader gives the kind of value that it names, up to its limit, or Malformed."""

from __future__ import annotations

from typing import Any

import pytest

from producers import fields
from shared.errors import Malformed


@pytest.mark.parametrize("value", [0, 2**63 - 1, -(2**63) + 1])
def test_a_number_is_one_that_databases_can_keep(value: int) -> None:
    assert fields.number({"n": value}, "n") == value


@pytest.mark.parametrize("value", [2**63, -(2**63), True, 1.0, "1", None])
def test_anything_else_is_no_number(value: Any) -> None:
    with pytest.raises(Malformed, match=r"^n is not a number$"):
        fields.number({"n": value}, "n")


@pytest.mark.parametrize(("value", "found"), [(True, True), (False, False), (None, False), (1, False), ("true", False)])
def test_a_flag_is_set_by_true_alone(value: Any, found: bool) -> None:
    assert fields.flag({"f": value}, "f") is found and fields.flag({}, "f") is False


def test_a_list_of_objects_is_taken_up_to_its_limit() -> None:
    assert fields.items({}, "l") == [] == fields.items({"l": []}, "l")
    assert len(fields.items({"l": [{}] * fields.ITEM_LIMIT}, "l")) == fields.ITEM_LIMIT == 1000
    wrong: list[Any] = [[{}] * (fields.ITEM_LIMIT + 1), [{}, 1], {}, "text"]
    for value in wrong:
        with pytest.raises(Malformed, match=r"^l is not a list of objects$"):
            fields.items({"l": value}, "l")


def test_text_is_taken_as_it_was_sent_up_to_its_limit() -> None:
    assert fields.text({"t": " a\0b "}, "t") == " a\0b "
    assert fields.text({"t": ""}, "t") is None is fields.text({}, "t")
    assert fields.text({"t": "x" * 200_000}, "t") == "x" * 200_000
    for value in ("x" * 200_001, 1, ["x"]):
        with pytest.raises(Malformed, match=r"^t is not text$"):
            fields.text({"t": value}, "t")


def test_a_name_that_is_too_long_is_cut_and_fit_to_be_kept() -> None:
    assert fields.name({"n": "x" * 300}, "n") == "x" * 256
    assert fields.name({"n": "a\0b"}, "n") == "a\N{REPLACEMENT CHARACTER}b"
    assert fields.name({}, "n") is None


def test_an_object_is_an_object() -> None:
    assert fields.object_({"o": {"a": 1}}, "o") == {"a": 1}
    wrong: list[Any] = [[], "text", None]
    for value in wrong:
        with pytest.raises(Malformed, match=r"^o is not an object$"):
            fields.object_({"o": value}, "o")

"""Copies of values that differ in some fields."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from shared.value import changed, value


@value
class Place:
    city: str
    street: str = ""
    names: tuple[str, ...] = field(default_factory=tuple)


def test_a_changed_value_equals_what_replace_makes_and_leaves_the_old_one_alone() -> None:
    old = Place("Ulm", "Am Tor", ("gate",))
    assert changed(old, street="Am See") == replace(old, street="Am See") == Place("Ulm", "Am See", ("gate",))
    assert old == Place("Ulm", "Am Tor", ("gate",))


def test_a_field_that_a_value_does_not_have_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        changed(Place("Ulm"), country="Germany")

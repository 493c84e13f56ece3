"""The types of a decoded record's fields."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import Malformed
from shared.field_types import MAYBE_TEXT, TEXT, FieldTypes, of_type
from shared.value import value


@value
class Record:
    name: Any
    note: Any
    count: Any


TYPES = FieldTypes([*of_type(TEXT, "name"), *of_type(MAYBE_TEXT, "note"), ("count", (int,))])


@pytest.mark.parametrize("right", [Record("a", None, 1), Record("a", "b", 1)])
def test_a_record_with_the_allowed_types_passes_at_every_look(right: Record) -> None:
    for _ in range(2):
        TYPES.check(right, "record")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [(Record(1, None, 1), "name"), (Record("a", 2, 1), "note"), (Record("a", None, True), "count")],
)
def test_a_record_with_another_type_is_refused_at_every_look_by_the_name_of_its_field(wrong: Record, name: str) -> None:
    for _ in range(2):
        TYPES.check(Record("a", None, 1), "record")
        with pytest.raises(Malformed, match=f"record.{name} is of the wrong kind"):
            TYPES.check(wrong, "record")

"""Values: dataclasses that nobody changes. mypy holds everyone to that; where Python did, each would take five times as
long to make, and a message is some twenty of them on its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    Class = TypeVar("Class")

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def value(cls: type[Class]) -> type[Class]: ...
else:
    value = partial(dataclass, slots=True, unsafe_hash=True)

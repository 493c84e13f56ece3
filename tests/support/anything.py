"""Payloads with anything in any place of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_VALUES = (
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
)
JSON = st.recursive(
    st.one_of(*_VALUES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def spoil(payload: Any, data: st.DataObject) -> None:
    """Put something else into one place of the payload."""
    *path, last = data.draw(st.sampled_from([place for place in _places(payload) if place]))
    holder = payload
    for name in path:
        holder = holder[name]
    holder[last] = data.draw(JSON)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from _places(item, (*path, name))

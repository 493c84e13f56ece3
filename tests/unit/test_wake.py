"""A wake's call as RQ keeps it: what is read as one of ours, and what is not."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from shared.codec import Serializer
from shared.lane.wake import called


def packed(call: Any) -> bytes:
    return zlib.compress(Serializer.dumps(call))


def test_a_call_is_read_as_it_was_written() -> None:
    assert called(packed(["workers.jobs.take_turns", None, ["k"], {}])) == ("workers.jobs.take_turns", ["k"])


@pytest.mark.parametrize(
    "call",
    [
        ["f", None, "k", {}],
        ["f", None, {"0": "k"}, {}],
        ["f", None, None, {}],
        ["f", "instance", ["k"], {}],
        ["f", None, ["k"], {"key": "k"}],
        [7, None, ["k"], {}],
    ],
)
def test_a_forged_call_is_refused_as_no_wake(call: list[Any]) -> None:
    with pytest.raises(ValueError, match="not a wake"):
        called(packed(call))

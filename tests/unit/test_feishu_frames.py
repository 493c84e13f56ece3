"""The frames of Feishu's long connection: what is written is read, and what is none breaks nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.feishu.frames import CONTROL, DATA, FeishuFrame, decode, encode
from producers.feishu.parts import MOST_WAITING, Parts
from shared.errors import Malformed

TEXTS = st.none() | st.binary(max_size=300)
NUMBERS = st.integers(0, 2**64 - 1)
FRAMES = st.builds(
    FeishuFrame,
    service=st.integers(0, 2**31 - 1),
    method=st.sampled_from([CONTROL, DATA]),
    headers=st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=5).map(tuple),
    payload=TEXTS,
    seq_id=NUMBERS,
    log_id=NUMBERS,
    payload_encoding=TEXTS,
    payload_type=TEXTS,
    log_id_new=TEXTS,
)


def test_a_ping_is_the_bytes_that_feishus_own_library_writes() -> None:
    ping = FeishuFrame(33554678, CONTROL, ((b"type", b"ping"),))
    assert encode(ping) == bytes.fromhex("0800 1000 18f68180 10 2000 2a0c 0a0474797065 120470696e67".replace(" ", ""))


@given(FRAMES)
def test_what_is_written_is_read(frame: FeishuFrame) -> None:
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_malformed(data: bytes) -> None:
    try:
        decode(data)
    except Malformed:
        return


@given(FRAMES.filter(lambda frame: frame.log_id_new), st.integers(1, 40))
def test_a_frame_that_is_cut_off_is_not_taken_for_whole(frame: FeishuFrame, less: int) -> None:
    try:
        assert decode(encode(frame)[:-less]) != frame
    except Malformed:
        return


def test_fields_that_nobody_knows_are_no_matter() -> None:
    unknown = bytes.fromhex("7801" + "7a0161" + "79" + "00" * 8 + "7d" + "00" * 4)  # field 15 in four ways
    frame = FeishuFrame(7, DATA, ((b"type", b"event"),), b"{}")
    assert decode(unknown + encode(frame) + unknown) == frame


def part(id: str, count: int, place: int, payload: bytes) -> FeishuFrame:
    headers = {"message_id": id, "sum": str(count), "seq": str(place)}
    return FeishuFrame(1, DATA, tuple((key.encode(), text.encode()) for key, text in headers.items()), payload)


def test_parts_are_joined_in_their_order_whatever_order_they_come_in() -> None:
    parts = Parts()
    assert parts.whole(part("a", 1, 0, b"alone")) == b"alone"
    assert parts.whole(part("a", 3, 2, b"3")) is None
    assert parts.whole(part("b", 2, 0, b"x")) is None
    assert parts.whole(part("a", 3, 0, b"1")) is None
    assert parts.whole(part("a", 3, 0, b"1")) is None  # again
    assert parts.whole(part("a", 3, 1, b"")) == b"13"
    assert parts.whole(part("b", 2, 1, b"y")) == b"xy"


def test_parts_of_an_event_that_comes_again_in_other_pieces_are_not_mixed_with_the_first() -> None:
    parts = Parts()
    assert parts.whole(part("a", 3, 2, b"3")) is None
    assert parts.whole(part("a", 2, 0, b"12")) is None
    assert parts.whole(part("a", 2, 1, b"34")) == b"1234"
    assert parts.whole(part("b", 2, 1, b"34")) is None
    assert parts.whole(part("b", 3, 0, b"1")) is None
    assert parts.whole(part("b", 3, 1, b"23")) is None
    assert parts.whole(part("b", 3, 2, b"4")) == b"1234"


def test_parts_without_end_do_not_fill_our_memory() -> None:
    parts = Parts()
    for n in range(MOST_WAITING + 1):
        assert parts.whole(part(str(n), 2, 0, b"x")) is None
    assert parts.whole(part("0", 2, 1, b"y")) is None  # forgotten: Feishu sends it again
    assert parts.whole(part(str(MOST_WAITING), 2, 1, b"y")) == b"xy"


@pytest.mark.parametrize(("count", "place"), [(2, 2), (2, 9), (10**6, 0)])
def test_a_part_of_more_than_there_are_is_malformed(count: int, place: int) -> None:
    with pytest.raises(Malformed):
        Parts().whole(part("a", count, place, b""))


@pytest.mark.parametrize("text", [b"-1", b"x", b"1.5", b"\xff", "²".encode()])
def test_a_count_that_is_none_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        Parts().whole(FeishuFrame(1, DATA, ((b"sum", text),), b""))

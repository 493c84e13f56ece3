"""The frames of Feishu's long connection: protocol buffers of one shape, with numbers, texts and headers.

Frame   1 SeqID  2 LogID  3 service  4 method  5 headers  6 payload_encoding  7 payload_type  8 payload  9 LogIDNew
Header  1 key  2 value
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.errors import Malformed
from shared.value import value

CONTROL, DATA = 0, 1  # methods
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written
_HEADERS = 5
_NUMBERS = {1: "seq_id", 2: "log_id", 3: "service", 4: "method"}
_TEXTS = {6: "payload_encoding", 7: "payload_type", 8: "payload", 9: "log_id_new"}
_LONGEST_VARINT = 10
_MOST_HEADERS = 100


@value
class FeishuFrame:
    """One frame. Texts are bytes, as they came, so that an answer repeats them exactly; None: not there."""

    service: int = 0
    method: int = CONTROL
    headers: tuple[tuple[bytes, bytes], ...] = ()
    payload: bytes | None = None
    seq_id: int = 0
    log_id: int = 0
    payload_encoding: bytes | None = None
    payload_type: bytes | None = None
    log_id_new: bytes | None = None

    def header(self, key: str) -> str:
        """The value of a header; empty where there is none."""
        return next((value.decode(errors="replace") for name, value in self.headers if name == key.encode()), "")


def encode(frame: FeishuFrame) -> bytes:
    written = bytearray()
    for number, name in _NUMBERS.items():
        written += _varint(number << 3 | _VARINT) + _varint(getattr(frame, name))
    for key, text in frame.headers:
        written += _field(_HEADERS, _field(1, key) + _field(2, text))
    for number, name in _TEXTS.items():
        if (text := getattr(frame, name)) is not None:
            written += _field(number, text)
    return bytes(written)


def decode(data: bytes) -> FeishuFrame:
    """The frame in these bytes; Malformed for what is none. Fields that we do not know are no matter."""
    found: dict[str, Any] = {}
    headers: list[tuple[bytes, bytes]] = []
    for number, content in _fields(data):
        if number == _HEADERS and isinstance(content, bytes):
            headers.append(_header(content))
        elif number in _NUMBERS and isinstance(content, int):
            found[_NUMBERS[number]] = content
        elif number in _TEXTS and isinstance(content, bytes):
            found[_TEXTS[number]] = content
    if len(headers) > _MOST_HEADERS:
        raise Malformed("a frame has too many headers")
    return FeishuFrame(headers=tuple(headers), **found)


def _header(data: bytes) -> tuple[bytes, bytes]:
    found = {number: content for number, content in _fields(data) if isinstance(content, bytes)}
    return found.get(1, b""), found.get(2, b"")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            content, at = _read_varint(data, at)
            yield number, content
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, at = _read_varint(data, at)
        if length is None or at + length > len(data):
            raise Malformed("a frame is cut off, or none")
        if kind == _BYTES:
            yield number, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
    raise Malformed("a frame is cut off, or none")


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content

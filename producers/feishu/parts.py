"""Puts together what Feishu sends in several frames: parts of one payload, in any order."""

from __future__ import annotations

import re

from producers.feishu.frames import FeishuFrame
from shared.errors import Malformed

MOST_PARTS = 1000
MOST_WAITING = 100  # payloads that are not whole yet; the oldest go first, and Feishu sends them again
MOST_BYTES = 16 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,9}")


class Parts:
    """The payloads of one connection that are not whole yet."""

    def __init__(self) -> None:
        self._waiting: dict[
            tuple[str, int], dict[int, bytes]
        ] = {}  # by id and number of parts: cut anew, its parts are others

    def whole(self, frame: FeishuFrame) -> bytes | None:
        """The payload that this frame completes; None: more of it has to come. Malformed for a part that is none."""
        payload, count, place = frame.payload or b"", _number(frame, "sum", 1), _number(frame, "seq", 0)
        if count <= 1:
            return payload
        if count > MOST_PARTS or place >= count:
            raise Malformed("a part of more than there are")
        id = frame.header("message_id"), count
        parts = self._waiting.pop(id, {})
        parts[place] = payload
        if sum(map(len, parts.values())) > MOST_BYTES:
            raise Malformed("the parts are too long together")
        if len(parts) == count:
            return b"".join(parts[n] for n in range(count))
        self._waiting[id] = parts
        if len(self._waiting) > MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
        return None


def _number(frame: FeishuFrame, key: str, usual: int) -> int:
    text = frame.header(key)
    if not text:
        return usual
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{key} is not a number")
    return int(text)

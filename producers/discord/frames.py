"""The frames of the gateway, read one by one. Nothing that Discord sends makes reading fail."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

import orjson

from shared.value import value

_SEQ = re.compile(rb'"s"\s*:\s*([0-9]{1,18})\s*[,}]')


class Op(IntEnum):
    """The kinds of gateway frames that we send or act on. Others may come and are passed over."""

    DISPATCH = 0
    HEARTBEAT = 1
    IDENTIFY = 2
    RESUME = 6
    RECONNECT = 7
    INVALID_SESSION = 9
    HELLO = 10
    HEARTBEAT_ACK = 11


_OPS = {op.value: op for op in Op}


@value
class DiscordFrame:
    """What Discord sent. `op` is None for an opcode that we do not know; `broken` is a frame that cannot be parsed."""

    op: Op | None
    data: Any = None
    seq: int | None = None
    kind: str = ""
    broken: bytes | None = None


@value
class Dispatch:
    """Something that happened, numbered within its session."""

    seq: int
    kind: str
    data: Any
    broken: bytes | None = None  # the frame as it came, where it cannot be parsed


def read_frame(data: str | bytes) -> DiscordFrame:
    """A frame that cannot be parsed is taken for a dispatch: only those carry what people wrote."""
    frame = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    try:
        fields = orjson.loads(frame)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        found = _SEQ.findall(frame)
        return DiscordFrame(Op.DISPATCH, seq=int(found[-1]) if found else None, broken=frame)
    op, seq, kind = fields.get("op"), fields.get("s"), fields.get("t")
    return DiscordFrame(
        _OPS.get(op) if type(op) is int else None,
        fields.get("d"),
        seq if type(seq) is int else None,
        kind if isinstance(kind, str) else "",
    )

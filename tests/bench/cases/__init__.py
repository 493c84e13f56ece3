"""The cases, one module each. A case is a function that lists its contestants; they run in turn, round after round."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.board import Variant
from tests.bench.cases import (
    accept,
    backlog,
    floor,
    history,
    latency,
    loading,
    ordered,
    plain_answer,
    receivers,
    replies,
    retention,
    scale,
    search,
    sessions,
    sharing,
    space,
    streaming,
    traces,
    trips,
    turns_20ms,
    waiting,
    watching,
)
from tests.bench.ground import Ground
from tests.bench.sizes import Sizes

Case = Callable[[Ground, Sizes, bool], list[Variant]]  # the last says whether the peers take part

CASES: dict[str, Case] = {
    "ordered": ordered.variants,
    "20 ms turns": turns_20ms.variants,
    "accept": accept.variants,
    "receivers": receivers.variants,
    "trips": trips.variants,
    "latency": latency.variants,
    "waiting": waiting.variants,
    "streaming": streaming.variants,
    "plain answer": plain_answer.variants,
    "replies": replies.variants,
    "sharing": sharing.variants,
    "history": history.variants,
    "sessions": sessions.variants,
    "loading": loading.variants,
    "search": search.variants,
    "watching": watching.variants,
    "traces": traces.variants,
    "space": space.variants,
    "retention": retention.variants,
    "scale": scale.variants,
    "backlog": backlog.variants,
    "floor": floor.variants,
}

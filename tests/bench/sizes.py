"""How much of everything: the full run, the two-minute form, and the form that only shows that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int  # of each case, interleaved
    keys: int
    per_key: int
    peer_seconds: float  # a peer that has not drained by then is judged by what it did
    slow_keys: int  # for turns of 20 ms
    slow_per_key: int
    accepts: int
    received: int  # requests per platform
    rates: tuple[int, ...]  # messages per second
    rate_seconds: float
    waiting: tuple[int, ...]
    streams: tuple[int, ...]  # answers of a model at once
    stream_seconds: float  # that each takes
    busy_chats: int  # whose turns fill a worker while replies leave
    shared_keys: int  # for two workers
    histories: tuple[int, ...]
    sessions: tuple[int, ...]
    lengths: tuple[int, int]  # of pasts, for loading
    crowds: tuple[int, int]  # of sessions, for the same
    waiting_keys: int  # while an operator looks
    stored_sessions: int  # the same
    looks: int
    live_seconds: float  # that a live page is open
    searched: int  # messages that are searched
    talked: int  # messages whose space is measured
    turns: int  # measured per history length and per number of sessions
    traced: tuple[int, int]  # how often without and with traces, and messages each time
    processes: tuple[int, ...]
    backlog_keys: int
    backlog_per_key: int


FULL = Sizes(
    rounds=3,
    keys=1000,
    per_key=10,
    peer_seconds=20,
    slow_keys=100,
    slow_per_key=5,
    accepts=10_000,
    received=10_000,
    rates=(50, 200),
    rate_seconds=15,
    waiting=(1000, 5000),
    streams=(1000,),
    stream_seconds=2,
    busy_chats=600,
    shared_keys=500,
    histories=(10, 1000, 2000, 100_000),
    sessions=(100, 10_000, 1_000_000),
    lengths=(100, 100_000),
    crowds=(1000, 1_000_000),
    waiting_keys=100_000,
    stored_sessions=1_000_000,
    looks=10,
    live_seconds=20,
    searched=1_000_000,
    talked=20_000,
    turns=1000,
    traced=(14, 4000),
    processes=(1, 2, 4),
    backlog_keys=5000,
    backlog_per_key=10,
)
QUICK = Sizes(
    rounds=1,
    keys=200,
    per_key=5,
    peer_seconds=3,
    slow_keys=20,
    slow_per_key=5,
    accepts=1000,
    received=2000,
    rates=(50, 200),
    rate_seconds=3,
    waiting=(200, 1000),
    streams=(200,),
    stream_seconds=2,
    busy_chats=200,
    shared_keys=500,
    histories=(10, 1000, 2000),
    sessions=(100, 10_000),
    lengths=(100, 2000),
    crowds=(1000, 10_000),
    waiting_keys=2_000,
    stored_sessions=10_000,
    looks=3,
    live_seconds=3,
    searched=20_000,
    talked=2000,
    turns=100,
    traced=(5, 500),
    processes=(1, 2),
    backlog_keys=500,
    backlog_per_key=4,
)
TINY = Sizes(
    rounds=1,
    keys=4,
    per_key=3,
    peer_seconds=1,
    slow_keys=2,
    slow_per_key=2,
    accepts=10,
    received=20,
    rates=(20,),
    rate_seconds=0.5,
    waiting=(3,),
    streams=(3,),
    stream_seconds=0.2,
    busy_chats=4,
    shared_keys=6,
    histories=(2, 10),
    sessions=(2, 10),
    lengths=(2, 10),
    crowds=(2, 10),
    waiting_keys=200,
    stored_sessions=500,
    looks=1,
    live_seconds=0.2,
    searched=500,
    talked=30,
    turns=10,
    traced=(1, 20),
    processes=(1,),
    backlog_keys=5,
    backlog_per_key=2,
)

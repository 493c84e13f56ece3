"""The queues that people would use instead, one module each. A module is a program of its own:

    python -m tests.bench.peers.NAME fill REDIS_URL KEYS PER_KEY     put the messages in
    python -m tests.bench.peers.NAME work REDIS_URL                  drain them, leaving lines in BENCH_RECORD

It may import its queue, the standard library, tests.bench.load and tests.bench.record: its environment has no more.
Settings are those that suit the queue best for empty jobs in one process; where that is not the default, it says so.
"""

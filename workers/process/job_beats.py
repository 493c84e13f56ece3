"""Which running jobs are to be reported to RQ again.

Their entries in RQ's registries are good for `worker_ttl` from the start on, so each is reported three times in that time and
not with every heartbeat of its worker: with 1,000 jobs that took a tenth of a core and kept the event loop for 0.1 s each second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workers.process.wakes import HeldWake

BEATS_PER_TTL = 3  # two reports may fail
JOBS_AT_ONCE = 100  # per pipeline: about 10 ms of the event loop


class JobBeats:
    """Remembers when each running job was reported. A job that it has not seen yet was reported by its start."""

    def __init__(self, ttl_seconds: float) -> None:
        self._every_seconds = ttl_seconds / BEATS_PER_TTL
        self._reported: dict[str, float] = {}  # by job id

    def due(self, held: Mapping[str, HeldWake], now: float) -> Iterator[list[HeldWake]]:
        """The jobs that are due at this time on the monotonic clock, in portions. A portion counts as reported when the next
        one is asked for: where that fails, it is due again."""
        self._reported = {job_id: self._reported.get(job_id, now) for job_id in held}
        due = [job_id for job_id, at in self._reported.items() if now - at >= self._every_seconds]
        for start in range(0, len(due), JOBS_AT_ONCE):
            portion = [job_id for job_id in due[start : start + JOBS_AT_ONCE] if job_id in held]
            yield [held[job_id] for job_id in portion]
            self._reported.update(dict.fromkeys(portion, now))

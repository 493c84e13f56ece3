"""Records that a newer version of Keyturn wrote: during a rolling update an old worker leaves them to the new ones.

Nothing is lost and no attempt is spent: the key is given back with its mail and woken again after a delay. The delay is as
long as the record has waited already, so it doubles, up to LONGEST.
"""

from __future__ import annotations

import time
from datetime import timedelta

from shared import log, metrics
from shared.clock import now_ms
from shared.errors import TooNew
from shared.lane import Lease

SHORTEST, LONGEST = timedelta(milliseconds=500), timedelta(seconds=15)
LOG_EVERY_SECONDS = 60.0  # by each process: thousands of keys may wait


class _Log:
    """Remembers when this process may next say that it is too old."""

    next_at = 0.0


def delay_for_newer(lease: Lease, error: TooNew) -> timedelta:
    """How long to leave a key alone whose first record only a newer worker can read. Counts and reports that."""
    metrics.NEWER_MAIL.labels(lease.lane.name).inc()
    if time.monotonic() >= _Log.next_at:
        _Log.next_at = time.monotonic() + LOG_EVERY_SECONDS
        log.get().error("this worker is too old for its mail: update it", key=lease.key, reason=str(error))
    return delay_after(timedelta(milliseconds=now_ms() - error.written_at))


def delay_after(waited: timedelta) -> timedelta:
    """The delay of a record that has waited for so long: as long again, within bounds."""
    return min(max(waited, SHORTEST), LONGEST)

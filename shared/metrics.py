"""What is counted and timed, once per process. With PROMETHEUS_MULTIPROC_DIR set, `render` adds up all processes there."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from shared import VERSION
from shared.dead_reasons import MessageReason, ReplyReason
from shared.mail import INBOUND_VERSION
from shared.platforms import PLATFORMS

ACCEPTED = Counter("keyturn_accepted_total", "Inbounds accepted", ["platform"])
DEDUP_HIT = Counter("keyturn_dedup_hit_total", "Deliveries of an inbound that was accepted before")
DEDUP_CONFLICT = Counter(
    "keyturn_dedup_conflict_total",
    "Messages not taken because an accepted one has their id and says something else",
    ["platform"],
)
REFUSED = Counter("keyturn_refused_total", "Requests refused", ["reason"])
TURNS = Counter("keyturn_turns_total", "Turns ended", ["outcome"])
FENCE_REJECTED = Counter("keyturn_fence_rejected_total", "Commits refused because the session had moved on")
LEASE_LOST = Counter("keyturn_lease_lost_total", "Leases that expired while held")
REDELIVERED = Counter("keyturn_redelivered_total", "Turns begun again for the same mail")
DEAD_LETTER = Counter("keyturn_dead_letter_total", "Inbounds and replies set aside", ["reason"])
NEWER_MAIL = Counter(
    "keyturn_newer_mail_total",
    "Looks at mail or replies that only a newer worker can read: the worker that looked is too old",
    ["lane"],
)
DELIVERED = Counter("keyturn_delivered_total", "Parts sent", ["platform"])
AMBIGUOUS_SEND = Counter("keyturn_ambiguous_send_total", "Sends whose outcome is unknown", ["platform"])
SEND_WAITS = Counter(
    "keyturn_send_waits_total",
    "Times that a chat was made to wait: by a budget of ours, or asked by its platform",
    ["platform", "cause"],
)
FORGED_JOB = Counter("keyturn_forged_job_total", "RQ jobs refused because they are none of ours")
RECOVERED = Counter("keyturn_recovered_total", "Keys woken by the housekeeper", ["lane", "cause"])
REDIS_FAILOVERS = Counter(
    "keyturn_redis_failovers_total", "Times that Sentinels named another Redis server as the primary"
)
DATABASE_FAILOVERS = Counter(
    "keyturn_database_failovers_total", "Times that this process found another PostgreSQL server to be the primary"
)
LOOP_ERRORS = Counter("keyturn_loop_errors_total", "Unforeseen errors that a background loop survived", ["loop"])
PROVIDER_REFUSED = Counter(
    "keyturn_provider_refused_total",
    "Requests that a model's provider refused because there were too many",
    ["provider"],
)
PROVIDER_WAITS = Counter(
    "keyturn_provider_waits_total", "Turns given back because a model's provider may not be asked yet", ["obstacle"]
)
SLOTS = Counter("keyturn_schedule_slots_total", "Slots of schedules that have come", ["state"])
BLOBS_REMOVED = Counter("keyturn_blobs_removed_total", "Files removed because nothing refers to them any more")
PRUNED = Counter("keyturn_pruned_total", "Records removed because they were kept long enough", ["kind"])
MEDIA_FETCHED = Counter("keyturn_media_fetched_total", "Files of messages that were fetched, or why not", ["outcome"])
FLUSHES = Counter("keyturn_memory_flushes_total", "Conversations looked at for what is worth keeping", ["outcome"])
STAGE = Histogram(
    "keyturn_stage_seconds",
    "Time spent per stage",
    ["stage"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)

WAIT = Histogram(
    "keyturn_wait_seconds",
    "What a turn has waited for before it began: a worker, its own conversation (key), or its next attempt (delay)",
    ["cause"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
)
COLLECT_ERRORS = Counter(
    "keyturn_collect_errors_total", "Stores that did not answer when the deployment's gauges were read", ["store"]
)
COLLECT_SECONDS = Histogram(
    "keyturn_collect_seconds", "Time to read the deployment's gauges", buckets=(0.01, 0.03, 0.1, 0.3, 1, 3)
)
BUILD = Gauge("keyturn_build_info", "1 for each version that runs", ["version", "wire"], multiprocess_mode="livemax")
BUILD.labels(VERSION, str(INBOUND_VERSION)).set(1)
PROCESS = Gauge(
    "keyturn_process_info",
    "1 for each kind of process beside receivers that gives metrics",
    ["kind"],
    multiprocess_mode="livemax",
)

WAITED = {cause: WAIT.labels(cause) for cause in ("worker", "key", "delay")}
SECONDS = {
    stage: STAGE.labels(stage) for stage in ("accept", "fetch", "agent", "commit", "acknowledge", "send")
}  # looked up once
_OUTCOMES = ("answered", "command", "announced", "stopped", "rejected", "failed", "dead")
ENDED = {outcome: TURNS.labels(outcome) for outcome in _OUTCOMES}

# Series are there before the first event, so that an alert on them can tell "none" from "not measured".
for _platform in PLATFORMS:
    ACCEPTED.labels(_platform)
    DELIVERED.labels(_platform)
    AMBIGUOUS_SEND.labels(_platform)
    DEDUP_CONFLICT.labels(_platform)
    for _cause in ("budget", "platform"):
        SEND_WAITS.labels(_platform, _cause)
for _store in ("redis", "database"):
    COLLECT_ERRORS.labels(_store)
for _state in ("fired", "skipped", "missed"):
    SLOTS.labels(_state)
for _obstacle in ("cooling", "full", "rate"):
    PROVIDER_WAITS.labels(_obstacle)
for _lane in ("turns", "deliveries", "control"):
    NEWER_MAIL.labels(_lane)
for _reason in (*get_args(MessageReason), *(f"reply {reason}" for reason in get_args(ReplyReason))):
    DEAD_LETTER.labels(_reason)


def render() -> bytes:
    """The text that Prometheus reads."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    for path in Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == 0 and time.time() - path.stat().st_mtime > 1:
                path.unlink()  # its process was killed between creating and filling it; reading it would fail
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)

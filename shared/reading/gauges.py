"""Numbers about the whole deployment in Prometheus' text form, read from the stores when somebody asks.

Every receiver gives the same numbers, so queries take `max`, never `sum`, over receivers. A number that cannot be read is
left out, and `keyturn_collect_errors_total` counts it: so an alert can tell 0 from "not read". Counts stop at a bound, and
all who ask within a second share one answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from time import monotonic

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shared import metrics
from shared.clock import moment
from shared.lane_key import DELIVERIES, TURNS
from shared.pause_scope import PauseScope, ScopeKind
from shared.pipeline import Pipeline
from shared.reading.overview import BOUND, Overview, in_time, overview
from shared.reading.queues import QueueState
from shared.reading.signs import ServerSigns, signs_of
from shared.reading.workers import LaneSlots, WorkerState
from shared.settings import Settings
from shared.value import value

FRESH_SECONDS = 1.0


@value
class DeploymentNow:
    """The deployment at a moment: what an overview shows, and what only metrics show. `unsent` is by platform, None while the
    database is away; `signs` has a place for each Redis server, None for those that are away; `needed` says which are not drained."""

    seen: Overview
    unsent: dict[str, datetime] | None
    signs: tuple[ServerSigns | None, ...]
    needed: tuple[bool, ...]


class GaugeCollector:
    """Reads the deployment for all who ask, once a second at most."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._looking = asyncio.Lock()
        self._newest: tuple[float, bytes] | None = None

    async def render(self) -> bytes:
        """The gauges as text, at most a second old. Takes a few seconds at most: a store that is slower counts as away."""
        async with self._looking:
            if self._newest is None or monotonic() - self._newest[0] > FRESH_SECONDS:
                with metrics.COLLECT_SECONDS.time():
                    now = await read_deployment(self._pipe)
                _count_errors(now)
                self._newest = monotonic(), render_gauges(now, self._pipe.settings)
            return self._newest[1]


async def read_deployment(pipe: Pipeline) -> DeploymentNow:
    """Look at all stores at once. What does not answer in time is left out."""
    signs = asyncio.gather(*(in_time(signs_of(server)) for server in pipe.servers.all))
    seen, unsent, found = await asyncio.gather(overview(pipe), in_time(_unsent(pipe)), signs)
    needed = tuple(server not in pipe.servers.draining for server in pipe.servers.all)
    return DeploymentNow(seen, unsent, tuple(found), needed)


async def _unsent(pipe: Pipeline) -> dict[str, datetime]:
    return {row["platform"]: moment(row["oldest"]) for row in await pipe.store.overview.oldest_parts(BOUND)}


def _count_errors(now: DeploymentNow) -> None:
    if now.seen.redis_away:
        metrics.COLLECT_ERRORS.labels("redis").inc(now.seen.redis_away)
    if now.seen.stored is None or now.unsent is None:
        metrics.COLLECT_ERRORS.labels("database").inc()


def render_gauges(now: DeploymentNow, settings: Settings) -> bytes:
    """All gauges as text. Every platform that is on has its series, also while nothing waits there."""
    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=registry)

    _dependencies(now, gauge)
    _paused(now, gauge)
    if any(found is not None for found in now.signs):
        _lanes(now.seen, gauge)
        _slots(now.seen, gauge)
        _rq(now.seen, gauge)
        signs = [found for found in now.signs if found is not None]
        _signs(signs, gauge)
        if settings.synthetic.seconds:
            _synthetic(signs, gauge)
            _synthetic_held(now, gauge)
    _stored(now, gauge, settings.connected)
    return generate_latest(registry)


MakeGauge = Callable[..., Gauge]


def _dependencies(now: DeploymentNow, gauge: MakeGauge) -> None:
    up = gauge("keyturn_dependency_up", "Whether a store answers: 1 or 0", "name")
    up.labels("database").set(now.seen.stored is not None)
    for number, (signs, is_needed) in enumerate(zip(now.signs, now.needed, strict=True), 1):
        if signs is None and not is_needed:
            continue  # a server that is drained may go
        up.labels("redis" if len(now.signs) == 1 else f"redis-{number}").set(signs is not None)


def _lanes(seen: Overview, gauge: MakeGauge) -> None:
    ready = gauge("keyturn_ready_keys", "Keys that wait for a worker", "lane")
    oldest = gauge("keyturn_ready_oldest_seconds", "How long the first of them has waited: more workers help", "lane")
    running = gauge("keyturn_in_flight", "Keys that a worker serves", "lane")
    delayed = gauge("keyturn_delayed_keys", "Keys that wait for their next attempt", "lane")
    held = gauge("keyturn_paused_keys", "Keys that wait for the end of a pause", "lane")
    deepest = gauge("keyturn_partition_depth_max", "Keys that wait in the fullest partition", "lane")
    filled = gauge("keyturn_partitions_waiting", "Partitions in which keys wait", "lane")
    for lane in seen.lanes:
        depths = [queue.waiting for queue in seen.queues if queue.lane == lane.lane]
        ready.labels(lane.lane).set(lane.ready)
        oldest.labels(lane.lane).set(_age(seen, lane.ready_since))
        running.labels(lane.lane).set(lane.running)
        delayed.labels(lane.lane).set(lane.delayed)
        held.labels(lane.lane).set(lane.paused)
        deepest.labels(lane.lane).set(max(depths, default=0))
        filled.labels(lane.lane).set(sum(depth > 0 for depth in depths))
    overdue = gauge("keyturn_overdue_keys", "Keys that a housekeeper should have looked at")
    overdue.set(seen.overdue)


def _slots(seen: Overview, gauge: MakeGauge) -> None:
    slots = gauge("keyturn_slots", "Keys that all live workers may serve at once", "lane")
    used = gauge("keyturn_slots_used", "Slots that are taken", "lane")
    processes = {worker.name: worker for worker in seen.workers if worker.alive}  # known to every Redis server
    for name in (lane.lane for lane in seen.lanes):
        load = [lane for worker in processes.values() for lane in _lanes_of(worker) if lane.lane == name]
        slots.labels(name).set(sum(lane.slots for lane in load))
        used.labels(name).set(sum(lane.used for lane in load))


def _lanes_of(worker: WorkerState) -> tuple[LaneSlots, ...]:
    """A worker of an older version says only how many turns it may run."""
    return worker.lanes or (LaneSlots(TURNS, min(worker.running, worker.capacity), worker.capacity),)


def _rq(seen: Overview, gauge: MakeGauge) -> None:
    """What rq-exporter gives, without the names of workers and with a lane in the place of its partitions' queues."""
    workers = gauge("rq_workers", "RQ workers, by state", "state")
    states = {worker.name: worker.state for worker in seen.workers if worker.alive}.values()
    for state in ("busy", "idle", "suspended"):
        workers.labels(state).set(sum(found == state for found in states))
    jobs = gauge("rq_jobs", "RQ jobs, by lane and status", "queue", "status")
    for lane in (lane.lane for lane in seen.lanes):
        queues = [queue for queue in seen.queues if queue.lane == lane]
        for status, count in _jobs(queues):
            jobs.labels(lane, status).set(count)


def _jobs(queues: Iterable[QueueState]) -> list[tuple[str, int]]:
    found = list(queues)
    return [
        ("queued", sum(queue.waiting for queue in found)),
        ("started", sum(queue.running for queue in found)),
        ("finished", sum(queue.finished for queue in found)),
        ("failed", sum(queue.failed for queue in found)),
    ]


def _paused(now: DeploymentNow, gauge: MakeGauge) -> None:
    text = "Pauses in force, by what they hold; of scope rq, 1 while `rq suspend` holds all workers"
    paused = gauge("keyturn_paused", text, "scope")
    if signs := [found for found in now.signs if found is not None]:
        paused.labels("rq").set(any(found.suspended for found in signs))
    if now.seen.stored is not None:
        for kind in ScopeKind:
            paused.labels(kind.value).set(sum(scope.kind is kind for scope in now.seen.stored.pauses))


def _signs(signs: Sequence[ServerSigns], gauge: MakeGauge) -> None:
    looked = [found.housekeeper_at for found in signs]
    if times := [at.timestamp() for at in looked if at is not None]:
        text = "When a housekeeper last went through the due keys; of several Redis servers, the one that waits longest"
        gauge("keyturn_housekeeper_last_timestamp_seconds", text).set(min(times) if len(times) == len(looked) else 0)


def _synthetic(signs: Sequence[ServerSigns], gauge: MakeGauge) -> None:
    at = gauge("keyturn_synthetic_last_timestamp_seconds", "When the last synthetic message was delivered; 0: none was")
    took = gauge("keyturn_synthetic_seconds", "How long the last synthetic message took")
    ways = [found.synthetic for found in signs if found.synthetic is not None]
    if last := max(ways, key=lambda way: way.delivered_at, default=None):
        at.set(last.delivered_at.timestamp())
        took.set(last.seconds)


def _synthetic_held(now: DeploymentNow, gauge: MakeGauge) -> None:
    """While somebody holds synthetic messages back, that none arrives is no fault."""
    suspended = any(found is not None and found.suspended for found in now.signs)
    paused = now.seen.stored is not None and any(_holds_synthetic(scope) for scope in now.seen.stored.pauses)
    text = "Whether a pause or `rq suspend` holds synthetic messages back: 1 or 0"
    gauge("keyturn_synthetic_held", text).set(suspended or paused)


def _holds_synthetic(scope: PauseScope) -> bool:
    return scope.kind is ScopeKind.ALL or (scope.kind is ScopeKind.LANE and scope.name in (TURNS, DELIVERIES))


def _stored(now: DeploymentNow, gauge: MakeGauge, platforms: Sequence[str]) -> None:
    seen, stored = now.seen, now.seen.stored
    if stored is not None:
        waiting = gauge("keyturn_waiting", f"Rows not ended yet, up to {BOUND:,}", "what")
        text = "Age of the oldest row not ended yet, running turns included: a long turn is no lack of workers"
        age = gauge("keyturn_oldest_waiting_seconds", text, "what")
        for what, rows in (("inbound", stored.messages), ("outbox", stored.replies)):
            waiting.labels(what).set(rows.count)
            age.labels(what).set(_age(seen, rows.oldest))
        dead = gauge("keyturn_dead_open", f"Dead letters nobody has dealt with, up to {BOUND:,}")
        dead.set(stored.dead_letters.count)
    if now.unsent is not None:
        text = "Age of the oldest reply that is not sent yet and that no pause holds"
        unsent = gauge("keyturn_delivery_oldest_seconds", text, "platform")
        for platform in {*platforms, *now.unsent}:
            unsent.labels(platform).set(_age(seen, now.unsent.get(platform)))


def _age(seen: Overview, since: datetime | None) -> float:
    return max(0.0, (seen.at - since).total_seconds()) if since is not None else 0.0

"""Gauges read from the stores when somebody asks, so that one receiver can speak for the whole deployment."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shared import keys
from shared.clock import now_ms
from shared.errors import Unavailable
from shared.lane.rq_names import queue_key, running_key
from shared.pipeline import Pipeline


async def render_gauges(pipe: Pipeline) -> bytes:
    """Queue depth, what waits and since when, turns in flight. What cannot be read is left out."""
    registry = CollectorRegistry()
    depth = Gauge("keyturn_queue_depth", "Wakes waiting", ["queue"], registry=registry)
    awake = Gauge("keyturn_keys_awake", "Keys with mail, by lane", ["lane"], registry=registry)
    in_flight = Gauge("keyturn_in_flight", "Wakes running, by lane", ["lane"], registry=registry)
    waiting = Gauge("keyturn_waiting", "Rows not ended yet", ["what"], registry=registry)
    age = Gauge("keyturn_oldest_waiting_seconds", "Age of the oldest row not ended yet", ["what"], registry=registry)
    dead = Gauge("keyturn_dead_open", "Dead letters nobody has dealt with", registry=registry)
    for lane in pipe.lanes:
        in_flight.labels(lane.name).set(0)
        awake.labels(lane.name).set(0)
        for server in pipe.servers.all:
            try:
                awake.labels(lane.name).inc(await server.asked(server.client.zcard(keys.due(lane.name))))
                for partition in pipe.servers.partitions_of(server):
                    queue = keys.queue_name(lane.name, partition)
                    depth.labels(queue).set(await server.asked(server.client.llen(queue_key(queue))))
                    in_flight.labels(lane.name).inc(await server.asked(server.client.zcard(running_key(queue))))
            except Unavailable:
                continue
    try:
        backlog = await pipe.store.backlog()
    except Unavailable:
        return generate_latest(registry)
    dead.set(backlog["dead_open"])
    for what in ("inbound", "outbox"):
        oldest = backlog[f"{what}_oldest"]
        waiting.labels(what).set(backlog[f"{what}_waiting"])
        age.labels(what).set(max(0, now_ms() - oldest) / 1000 if oldest is not None else 0)
    return generate_latest(registry)

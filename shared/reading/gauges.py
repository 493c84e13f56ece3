"""Numbers about the whole deployment, read from the stores when somebody asks, so that one receiver can speak for all."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shared import keys
from shared.clock import moment, now_ms
from shared.errors import Unavailable
from shared.lane import Lane
from shared.lane.rq_names import queue_key, running_key
from shared.pipeline import Pipeline
from shared.reading.backlog import Backlog, backlog
from shared.value import value


@value
class LaneGauges:
    """A lane in numbers. Servers that do not answer are left out."""

    lane: str
    awake: int  # keys that are not idle
    in_flight: int  # wakes that a worker runs
    depths: Mapping[str, int]  # wakes that wait, by queue


@value
class Gauges:
    """The deployment in numbers. `backlog` is None while the database does not answer."""

    lanes: tuple[LaneGauges, ...]
    backlog: Backlog | None


async def read_gauges(pipe: Pipeline) -> Gauges:
    """Queue depth, turns in flight, what waits and since when."""
    lanes = tuple([await _lane(pipe, lane) for lane in pipe.lanes])
    try:
        return Gauges(lanes, await backlog(pipe.store))
    except Unavailable:
        return Gauges(lanes, None)


async def render_gauges(pipe: Pipeline) -> bytes:
    """The same in Prometheus' text form. A number that cannot be read is left out."""
    gauges, registry = await read_gauges(pipe), CollectorRegistry()
    depth = Gauge("keyturn_queue_depth", "Wakes waiting", ["queue"], registry=registry)
    awake = Gauge("keyturn_keys_awake", "Keys with mail, by lane", ["lane"], registry=registry)
    in_flight = Gauge("keyturn_in_flight", "Wakes running, by lane", ["lane"], registry=registry)
    waiting = Gauge("keyturn_waiting", "Rows not ended yet", ["what"], registry=registry)
    age = Gauge("keyturn_oldest_waiting_seconds", "Age of the oldest row not ended yet", ["what"], registry=registry)
    dead = Gauge("keyturn_dead_open", "Dead letters nobody has dealt with", registry=registry)
    for lane in gauges.lanes:
        awake.labels(lane.lane).set(lane.awake)
        in_flight.labels(lane.lane).set(lane.in_flight)
        for queue, wakes in lane.depths.items():
            depth.labels(queue).set(wakes)
    if gauges.backlog is not None:
        now = moment(now_ms())
        dead.set(gauges.backlog.dead_letters)
        for what, rows in (("inbound", gauges.backlog.messages), ("outbox", gauges.backlog.replies)):
            waiting.labels(what).set(rows.count)
            age.labels(what).set(max(0.0, (now - rows.oldest).total_seconds()) if rows.oldest is not None else 0)
    return generate_latest(registry)


async def _lane(pipe: Pipeline, lane: Lane) -> LaneGauges:
    awake = in_flight = 0
    depths: dict[str, int] = {}
    for server in pipe.servers.all:
        try:
            awake += await server.asked(server.client.zcard(keys.due(lane.name)))
            for partition in pipe.servers.partitions_of(server):
                queue = keys.queue_name(lane.name, partition)
                depths[queue] = await server.asked(server.client.llen(queue_key(queue)))
                in_flight += await server.asked(server.client.zcard(running_key(queue)))
        except Unavailable:
            continue
    return LaneGauges(lane.name, awake, in_flight, depths)

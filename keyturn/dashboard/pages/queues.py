"""Queues and workers: who serves what, and how much waits where."""

from __future__ import annotations

from starlette.responses import Response

from keyturn.dashboard.desk import Desk, Visit
from shared.reading.drained import servers_now
from shared.reading.overview import in_time
from shared.reading.queues import all_queues
from shared.reading.workers import all_workers

WORKERS_SHOWN = 200


async def show(desk: Desk, visit: Visit) -> Response:
    queues = await all_queues(desk.pipe)
    lanes = {lane.name: [queue for queue in queues if queue.lane == lane.name] for lane in desk.pipe.lanes}
    servers = await in_time(servers_now(desk.pipe)) if len(desk.pipe.servers.all) > 1 else ()
    return desk.page("queues.html", visit, lanes=lanes, servers=servers)


async def show_workers(desk: Desk, visit: Visit) -> Response:
    workers = await all_workers(desk.pipe.servers)
    values = {"workers": workers[:WORKERS_SHOWN], "more": max(0, len(workers) - WORKERS_SHOWN)}
    return desk.page("workers.html", visit, **values)

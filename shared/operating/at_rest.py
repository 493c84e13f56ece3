"""Whether anything of a deployment runs, by what its processes leave in Redis."""

from __future__ import annotations

from shared import keys
from shared.clock import moment, now_ms
from shared.errors import CannotDo
from shared.reading.signs import signs_of
from shared.reading.workers import SILENT_SECONDS, workers_of
from shared.redis_servers import RedisServer, Servers

HOUSEKEEPER_SECONDS = 12.0  # it leaves a sign every five seconds


async def check_at_rest(servers: Servers) -> None:
    """CannotDo while workers, housekeepers or listeners are seen in Redis: the text names them. Receivers and dashboards leave no
    sign there."""
    running = list(dict.fromkeys([name for server in servers.all for name in await _running(server)]))
    if running:
        text = f"still running: {'; '.join(running)}. Stop all processes first. A housekeeper that has stopped is forgotten"
        raise CannotDo(
            f"{text} after {HOUSEKEEPER_SECONDS:.0f} seconds, a worker that was killed after {SILENT_SECONDS:.0f}"
        )


async def _running(server: RedisServer) -> list[str]:
    found = [f"worker {worker.name}" for worker in await workers_of(server) if worker.alive]
    looked = (await signs_of(server)).housekeeper_at
    if looked is not None and abs((moment(now_ms()) - looked).total_seconds()) < HOUSEKEEPER_SECONDS:
        found.append(f"a housekeeper (it looked at {looked:%H:%M:%S} UTC)")
    cursor, prefix = 0, keys.listener("", "").removesuffix(":")
    while True:
        page: tuple[int, list[bytes]] = await server.asked(server.client.scan(cursor, match=f"{prefix}*", count=1000))
        cursor = int(page[0])
        found += [f"listener {name.decode(errors='replace').removeprefix(prefix).strip(':')}" for name in page[1]]
        if not cursor:
            return found

"""Commands that reach a worker over its RQ channel, from any process.

| command   | who says it                       | what happens                                             |
|-----------|-----------------------------------|----------------------------------------------------------|
| stop-job  | RQ's tools                        | one wake is cancelled; its attempt counts as failed      |
| stop-turn | stop.lua, when a user said /stop  | the turn that answers mail from before `at_ms` is ended  |
| look-turn | put.lua, when mail came; tell.lua | the turn looks at its mailbox, and takes over the `mode` |

RQ's `shutdown` is not obeyed: every process that takes messages in may publish here, and could keep all workers ended. End a
worker by SIGTERM; `rq suspend` lets all of them rest.
"""

from __future__ import annotations

import asyncio
import json

from shared import log
from shared.background import survived
from shared.busy import BusyMode
from shared.redis_servers import RedisServer
from workers.process.wakes import Wakes

RETRY_SECONDS = 0.5  # between tries while Redis is away


async def hear_commands(server: RedisServer, channel: str, wakes: Wakes) -> None:
    """Do what is said on the channel, until cancelled. What is said while Redis is away is not heard: /stop is also
    seen by the next renewal of the lease."""
    while True:
        try:
            async for data in server.heard(channel):
                run_command(data, wakes)
        except Exception as error:
            survived("commands", "commands not heard", error)
        await asyncio.sleep(RETRY_SECONDS)


def run_command(data: bytes, wakes: Wakes) -> None:
    """Do what one message says. Anybody may publish on the channel: what is not understood is logged and left."""
    try:
        payload = json.loads(data)
        command, job_id = payload.get("command"), payload.get("job_id")
    except (ValueError, AttributeError, RecursionError):
        log.get().warning("command not understood")
        return
    if command == "look-turn" and isinstance(job_id, str):  # one for each message: not logged
        after = str(payload.get("after"))
        wakes.tell(job_id, BusyMode.named(payload.get("mode")), int(after) if after.isdecimal() else 0)
        return
    log.get().info("command", command=str(command)[:40])
    if command == "shutdown":
        log.get().warning("command not obeyed: end a worker by SIGTERM", command="shutdown")
    elif command == "stop-job" and isinstance(job_id, str):
        wakes.kill(job_id)
    elif command == "stop-turn" and isinstance(job_id, str):
        at_ms = str(payload.get("at_ms"))
        if at_ms.isdecimal():
            wakes.drop_until(job_id, int(at_ms))

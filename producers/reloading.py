"""What a running receiver or listener hears: that somebody was paired, and that its settings are to be read again.

SIGHUP and `keyturn reload` do the same. Settings that do not work change nothing, and the log says why. While Redis is away
nothing is heard; then no approval is trusted that is only remembered, and SIGHUP still works.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from shared import keys, log
from shared.background import end_tasks, survived
from shared.errors import ConfigurationError
from shared.news import News
from shared.pipeline import Pipeline
from shared.settings.reload import reloaded
from shared.terminal import has_terminal

RETRY_SECONDS = 0.5  # between tries while Redis is away
FOUND = (
    "redis_url",
    "database_url",
    "partitions",
    "durability",
)  # may come from a running `up` instead of the settings


class RunningProducer:
    """A running receiver or listener. `apply` is given the pipeline with the new settings; what is under way ends with the
    old ones."""

    def __init__(self, pipe: Pipeline, process: str, apply: Callable[[Pipeline], None]) -> None:
        self.pipe = pipe
        self._process = process
        self._apply = apply

    def reload(self) -> None:
        """Read the settings again and go on with them, if they work."""
        before = self.pipe.settings
        try:
            fresh = reloaded(before, FOUND)
            log.setup_for(fresh.settings, self._process, also_hide=before.secret_values())
            pipe = replace(self.pipe, settings=fresh.settings)
            self._apply(pipe)
        except (ConfigurationError, OSError, ValueError) as error:  # the last two: a file that cannot be read
            reason = str(error) if isinstance(error, ConfigurationError) else type(error).__name__
            log.get().error("settings not reloaded, nothing is changed", reason=reason)
            return
        self.pipe = pipe
        about = {"changed": ", ".join(fresh.changed).upper(), "needs_restart": ", ".join(fresh.needs_restart).upper()}
        log.get().info("settings reloaded", **about)

    @asynccontextmanager
    async def listening(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """Hear of changes until the block ends. A terminal that is closed sends SIGHUP too: then `stop` is called. Under
        `nohup` the signal stays ignored."""
        had_terminal = has_terminal()

        def hung_up() -> None:
            stop() if had_terminal and not has_terminal() else self.reload()

        loop = asyncio.get_running_loop()
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, hung_up)
        hearing = asyncio.create_task(self._hear())
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            await end_tasks(hearing)

    async def _hear(self) -> None:
        approvals, servers = self.pipe.store.approvals, self.pipe.servers
        while True:
            try:
                async for said in servers.heard(keys.NEWS, approvals.trust):
                    if said == News.PAIRED.value:
                        approvals.forget()
                    elif said == News.RELOAD.value:
                        self.reload()
            except Exception as error:
                survived("news", "changes not heard", error)
            finally:
                approvals.distrust()
            await asyncio.sleep(RETRY_SECONDS)

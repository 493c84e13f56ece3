"""Keyturn as a contestant: messages accepted through the only door in, and real `keyturn` processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import uuid4

import uvloop
from pydantic import SecretStr

from shared import keys, log
from shared.clock import now_ms
from shared.codec import message_id
from shared.door import accept
from shared.lane_key import TURNS
from shared.messages import Inbound, Source
from shared.pipeline import Pipeline, open_pipeline
from shared.settings import Settings
from tests.bench.agent import SILENT_VARIABLE, SLEEP_VARIABLE
from tests.bench.drain import Contest, Drained, drain
from tests.bench.ground import Ground, environment
from tests.bench.record import STAGGER_VARIABLE, Watch

AT_ONCE = 256
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WORK_ALL = (sys.executable, "-m", "tests.bench.working", "work")
WORK = (*WORK_ALL, "--only", "turns")


@dataclass(frozen=True, slots=True)
class Deployment:
    """An empty Redis and a database, with settings as a user would have them."""

    ground: Ground
    database_url: str
    durability: str = "journal"
    changes: tuple[tuple[str, str], ...] = ()  # further settings, by their names in the environment

    def environment(self, **added: str) -> dict[str, str]:
        values = {
            "REDIS_URL": self.ground.redis_url,
            "DATABASE_URL": self.database_url,
            "DATA_DIR": str(self.ground.directory),
            "DURABILITY": self.durability,
            "AGENT": "tests.bench.agent:RecordingAgent",
            "LOG_LEVEL": "warning",
            **dict(self.changes),
        }
        return environment(**{f"KEYTURN_{name}": value for name, value in values.items()}, **added)

    def settings(self) -> Settings:
        changes = {name.lower(): value for name, value in self.changes if "__" not in name}
        return Settings(
            _env_file=None,  # type: ignore[call-arg]
            redis_url=SecretStr(self.ground.redis_url),
            database_url=SecretStr(self.database_url),
            data_dir=self.ground.directory,
            durability=self.durability,  # type: ignore[arg-type]
            log_level="warning",
            **changes,  # type: ignore[arg-type]
        )

    def fill(self, arrivals: Iterable[tuple[int, int]]) -> None:
        """Accept these messages, each key's in order; they wait from then on."""
        uvloop.run(self._fill(arrivals))

    async def _fill(self, arrivals: Iterable[tuple[int, int]]) -> None:
        log.setup("warning", "bench")
        async with open_pipeline(self.settings()) as pipe:
            await accept_all(pipe, (an_inbound(key, n) for key, n in arrivals))

    def idle(self) -> bool:
        """Everything committed and acknowledged: no key is awake."""
        return not self.ground.redis.zcard(keys.due(TURNS))

    def drain(
        self,
        messages: int,
        *,
        processes: int = 1,
        seconds: float = 0,
        silent: bool = False,
        stagger_seconds: float = 0,
        options: tuple[str, ...] = (),
        meanwhile: Callable[[Watch], None] | None = None,
    ) -> Drained:
        """Let workers drain what waits. `seconds` is how long each turn sleeps; a silent one answers nothing. Each worker
        begins `stagger_seconds` after the one before."""
        contest = Contest(
            command=(*WORK, *options),
            env=self.environment(
                **{
                    SLEEP_VARIABLE: str(seconds),
                    SILENT_VARIABLE: str(int(silent)),
                    STAGGER_VARIABLE: str(stagger_seconds),
                }
            ),
            messages=messages,
            processes=processes,
            idle=self.idle,
            meanwhile=meanwhile,
        )
        return drain(self.ground, contest, self.ground.fresh_directory("keyturn"))


def an_inbound(key: int, n: int) -> Inbound:
    event_id = f"evt_{uuid4().hex}"
    source = Source(platform="webhook", chat=f"c{key}", user="u1")
    return Inbound(message_id("webhook", "", event_id), event_id, source, str(n), received_at=now_ms())


async def accept_all(pipe: Pipeline, inbounds: Iterable[Inbound], at_once: int = AT_ONCE) -> int:
    """Accept with up to `at_once` in flight, each chat's one after another, as a platform sends them."""
    senders: list[list[Inbound]] = [[] for _ in range(at_once)]
    for inbound in inbounds:
        senders[hash(inbound.source.chat) % at_once].append(inbound)

    async def send(mine: list[Inbound]) -> None:
        for inbound in mine:
            await accept(pipe, inbound)

    await asyncio.gather(*(send(mine) for mine in senders))
    return sum(map(len, senders))

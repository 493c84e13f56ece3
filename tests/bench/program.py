"""A measurement that is a program of its own: it excludes its start-up itself and prints its figures as one JSON line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping

from shared.pipeline import Pipeline
from tests.bench.board import Sample

LIMIT_SECONDS = 600.0


def measured(
    module: str, arguments: tuple[str, ...], env: Mapping[str, str], limit_seconds: float = LIMIT_SECONDS
) -> Sample:
    """Run the module and take the figures that it prints last."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=limit_seconds, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"ended with {done.returncode}: {said[-1][:200] if said else ''}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


class Meter:
    """Time, CPU time of all threads, and Redis round trips, from `start` to `figures`."""

    def __init__(self, pipe: Pipeline) -> None:
        self._client = pipe.servers.all[0].client

    async def start(self) -> None:
        self._reads = await self._count()
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    async def figures(self, messages: int) -> Sample:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        reads = await self._count() - self._reads - 1  # the first look itself
        return {"rate": messages / wall, "cpu_ms": 1000 * cpu / messages, "trips": reads / messages, "seconds": wall}

    async def _count(self) -> int:
        return int((await self._client.info("stats"))["total_reads_processed"])

"""`python -m tests.bench.working work …`: that keyturn command, held back at the point where start-up ends."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from keyturn.cli import main as keyturn
from tests.bench.record import VARIABLE, wait_for_sign
from workers.process import run as process
from workers.process.parts import ProcessParts


def hold_at_start(begun: Callable[[], None]) -> None:
    """Let a worker wait for its sign once everything is imported and opened, just before it registers and pops."""
    names = vars(process)
    opened = names["open_parts"]

    @asynccontextmanager
    async def open_and_hold(*given: Any) -> AsyncIterator[ProcessParts]:
        async with opened(*given) as parts:
            if VARIABLE in os.environ:
                wait_for_sign()
            begun()
            yield parts

    names["open_parts"] = open_and_hold


def main(command: Sequence[str], begun: Callable[[], None] = lambda: None) -> None:
    hold_at_start(begun)
    keyturn(command)


if __name__ == "__main__":
    main(sys.argv[1:])

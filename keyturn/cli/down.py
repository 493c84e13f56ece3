"""`keyturn down`: stops the `up` of this directory, and no other."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated

import typer

from shared.errors import CannotDo


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running turns; they run again.")] = False,
) -> None:
    """Stop the `up` of this directory (of DATA_DIR), and return when it has ended. Running turns may end first."""
    from shared import settings
    from shared.embedded import running

    data_dir = settings.load().data_dir
    pid = running.holder(data_dir)
    if pid is None:
        raise CannotDo(f"nothing is up in {data_dir}")
    typer.echo(f"stopping pid {pid}" + ("" if now else "; running turns may end first (--now does not wait)"))
    _signal(pid)
    while running.holder(data_dir) == pid:
        here = running.find(data_dir)
        if now and here is not None and here.stopping:
            _signal(pid)  # the second one means: now
            now = False
        time.sleep(0.05)
    typer.echo("stopped")


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        raise CannotDo(f"pid {pid} belongs to another user") from None

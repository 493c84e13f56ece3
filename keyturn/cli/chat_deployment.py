"""The deployment that `keyturn chat` talks to: the one that is named, the `up` of this directory, or one of the chat's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keyturn.cli import show
from shared.embedded import child, running
from shared.errors import ConfigurationError, Unavailable
from shared.own_modules import command_of
from shared.settings import PREFIX, Settings
from shared.value import value

LOOK_SECONDS = 0.5  # between looks whether the `up` is still there


@value
class Joined:
    """Settings that name the servers, and where the workers' log is. `up`: the process that the chat depends on, if any."""

    settings: Settings
    log: str
    up: int | None = None

    async def until_gone(self) -> None:
        """Unavailable once the `up` of this directory is no longer there. Never, for a deployment that is named."""
        while self.up is None or running.holder(self.settings.data_dir) == self.up:
            await asyncio.sleep(LOOK_SECONDS)
        raise Unavailable(
            "the `keyturn up` that this chat talked to has stopped; what was not answered waits for the next"
        )


@contextmanager
def deployment(settings: Settings) -> Iterator[Joined]:
    if settings.redis_url is not None:
        yield Joined(settings, "the log of the workers")
        return
    own = _up(settings)
    log = str(_log_file(settings.data_dir)) if own is not None else "the log of `up`"
    try:
        yield Joined(running.joined(settings), log, running.holder(settings.data_dir))
    finally:
        if own is not None:
            own.terminate()
            own.wait()


def _up(settings: Settings) -> subprocess.Popen[bytes] | None:
    """Wait until an `up` is ready here, starting one where none is; the one that was started."""
    own: subprocess.Popen[bytes] | None = None
    told = ""
    while (found := running.find(settings.data_dir)) is None or found.stopping:
        if own is not None and own.poll() is not None:
            if not running.held(settings.data_dir):
                raise ConfigurationError(_last_words(settings.data_dir))
            own = None  # another was faster: wait for that one
        if own is None and not running.held(settings.data_dir):
            print(f"starting; the log is in {_log_file(settings.data_dir)}", file=sys.stderr)
            own = _start(settings)
        elif own is None and not told:
            told = "waiting for the `keyturn up` of this directory"
            print(f"{told}…", file=sys.stderr)
        time.sleep(0.05)
    if own is None and found.agent != settings.agent and "agent" in settings.model_fields_set:
        print(f"the `keyturn up` that runs here has agent {found.agent}", file=sys.stderr)
    return own


def _start(settings: Settings) -> subprocess.Popen[bytes]:
    running.make_directory(settings.data_dir)
    environment = {**os.environ, f"{PREFIX}AGENT": settings.agent, f"{PREFIX}LOG_FORMAT": "text", "NO_COLOR": "1"}
    command = command_of("keyturn.cli", "up", "--port", "0")
    with os.fdopen(os.open(_log_file(settings.data_dir), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        return child.start(command, env=environment, stdout=subprocess.DEVNULL, stderr=file)


def _log_file(data_dir: Path) -> Path:
    return data_dir / "chat.log"


def _last_words(data_dir: Path) -> str:
    """Why an `up` of ours ended, in its own words."""
    lines = _log_file(data_dir).read_text(errors="replace").splitlines()
    said = [line.removeprefix("keyturn: ") for line in lines if line.startswith("keyturn: ")]
    return show.plain(said[-1]) if said else f"could not start; see {_log_file(data_dir)}"

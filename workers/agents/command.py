"""The `command` agent: a program that runs once per turn.

It reads the turn on stdin, one line of JSON (shared/agent/wire.py) with `seconds`, the time that it has. What it writes to
stdout is its answer, as text or as events, one in each line. Its stderr goes to the log.

| it ends with | becomes | the message |
|---|---|---|
| 0 | an answer | is answered |
| 64, 65, 77, 78 (usage, data, permission, configuration) | Permanent | is set aside at once |
| 69 (unavailable) | Outage | waits, without spending an attempt |
| any other code, a signal | Transient | is tried again |

Nothing that the program started is left when the turn has ended, however it ended: see workers/agents/programs/keeper.py.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from shared import log
from shared.agent.events import Event
from shared.agent.turn import Turn
from shared.agent.wire import encode_turn
from shared.errors import AgentFault, ConfigurationError, Outage, Permanent, PipelineError, Transient
from workers.agents.contract import NeedsNoTask
from workers.agents.named import NO_LINE
from workers.agents.programs.bubblewrap import open_sandbox
from workers.agents.programs.environment import environment
from workers.agents.programs.launch import Launch
from workers.agents.programs.program import Launcher, Program
from workers.agents.spoken import CHUNK_BYTES, SpokenEvents, SpokenText, lines

if TYPE_CHECKING:
    from shared.settings.agents import CommandSettings

HOPELESS = (64, 65, 77, 78)  # of <sysexits.h>
UNAVAILABLE = 69
LOG_LINES, LOG_CHARACTERS = 200, 2_000  # of stderr, in one turn; more is read and left out


class CommandAgent(NeedsNoTask):
    """Answers with what a program says. A ConfigurationError says what is wrong with its settings."""

    def __init__(self, config: CommandSettings) -> None:
        self._config = config
        self._arguments = _arguments(config.line)
        self._name = os.path.basename(self._arguments[0])
        self._launcher = Launcher()
        self._sandbox = None
        if config.sandbox == "bubblewrap":
            network, hidden = config.sandbox_network, config.sandbox_hidden
            self._sandbox = open_sandbox("COMMAND__SANDBOX", has_network=network, hidden=hidden)

    async def run(self, turn: Turn) -> AsyncIterator[Event]:
        """Run the program. Its events come as it writes them; a program that nobody reads waits."""
        async with self._launcher.running(self._launch()) as (program, stdin):
            aside = [
                asyncio.create_task(_tell(stdin, turn)),
                asyncio.create_task(self._log(program.stderr)),
            ]
            try:
                async for event in self._said(program):
                    yield event
            finally:
                for task in aside:
                    task.cancel()
                await asyncio.gather(*aside, return_exceptions=True)

    async def _said(self, program: Program) -> AsyncIterator[Event]:
        if self._config.output == "events":
            events = SpokenEvents()
            async for line in lines(self._output(program)):
                yield events.take(line)
            ending = events.end
        else:
            text = SpokenText()
            async for chunk in self._output(program):
                for event in text.take(chunk):
                    yield event
            ending = text.end
        if failure := outcome(await program.exit_code(), self._name):
            raise failure
        for event in ending():
            yield event

    async def _output(self, program: Program) -> AsyncIterator[bytes]:
        size, most = 0, self._config.max_output_bytes
        while chunk := await program.stdout.read(CHUNK_BYTES):
            size += len(chunk)
            if size > most:
                raise AgentFault(f"the program wrote more than {most} bytes, which is COMMAND__MAX_OUTPUT_BYTES")
            yield chunk

    async def _log(self, stderr: asyncio.StreamReader) -> None:
        """Log what the program says to stderr, line by line. All of it is read: a full pipe would stop the program."""
        logger, count, rest = log.get(), 0, b""
        while chunk := await stderr.read(CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[:LOG_CHARACTERS]
            for line in whole:
                count += 1
                if count <= LOG_LINES:
                    logger.info("program", program=self._name, said=_shown(line))
        if rest and count < LOG_LINES:
            logger.info("program", program=self._name, said=_shown(rest))

    def _launch(self) -> Launch:
        config = self._config
        directory = str(config.directory or tempfile.mkdtemp(prefix="keyturn-"))
        arguments = self._sandbox.wrapped(self._arguments, directory) if self._sandbox else self._arguments
        added = {name: text.get_secret_value() for name, text in config.environment.items()}
        variables = environment(os.environ, config.pass_environment, added)
        return Launch(arguments, variables, directory, config.directory is None, _limits(config))


def outcome(code: int, name: str) -> PipelineError | None:
    """What the table above says of an exit code; None for an answer."""
    if code == 0:
        return None
    if code == UNAVAILABLE:
        return Outage(f"{name} is not available", provider=name, status=code)
    if code in HOPELESS:
        return Permanent(f"{name} ended with exit code {code}")
    if code > 0:
        return Transient(f"{name} ended with exit code {code}")
    with suppress(ValueError):
        return Transient(f"{name} was killed by {signal.Signals(-code).name}")
    return Transient(f"{name} was killed by signal {-code}")


def _arguments(line: str) -> tuple[str, ...]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigurationError(f"COMMAND__LINE: {error}") from None
    if not words:
        raise ConfigurationError(NO_LINE)
    found = shutil.which(words[0])
    if found is None:
        raise ConfigurationError(f"COMMAND__LINE: there is no program {words[0]!r:.200}")
    return (os.path.abspath(found), *words[1:])


def _limits(config: CommandSettings) -> dict[str, int]:
    chosen = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": config.max_open_files,
        "RLIMIT_AS": config.max_memory_mb and config.max_memory_mb * 2**20,
        "RLIMIT_FSIZE": config.max_file_mb and config.max_file_mb * 2**20,
        "RLIMIT_CPU": config.max_cpu_seconds,
    }
    return {name: most for name, most in chosen.items() if most is not None}


async def _tell(stdin: asyncio.StreamWriter, turn: Turn) -> None:
    """Write the turn, and close stdin. A program need not read it."""
    seconds = None if turn.deadline == math.inf else round(max(0.0, turn.deadline - time.monotonic()), 3)
    with suppress(ConnectionError):
        stdin.write(encode_turn(replace(turn, sender_key=""), seconds) + b"\n")
        await stdin.drain()
    stdin.close()


def _shown(line: bytes) -> str:
    return line[:LOG_CHARACTERS].decode(errors="replace").rstrip()

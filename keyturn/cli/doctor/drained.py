"""Redis servers that are drained: what they still hold, and whether they may be taken out."""

from __future__ import annotations

from keyturn.cli.doctor.finding import Finding, fail, warn
from shared.errors import ConfigurationError, PipelineError
from shared.pipeline import open_pipeline
from shared.reading.drained import drained_now
from shared.settings import Settings


async def drained_names(settings: Settings) -> frozenset[str]:
    """The servers that get no keys; none where that cannot be read."""
    try:
        async with open_pipeline(settings) as pipe:
            return frozenset(server.name for server in pipe.servers.draining)
    except (ConfigurationError, PipelineError, OSError, ValueError):  # the checks of the servers say why
        return frozenset()


async def check_drained(settings: Settings) -> list[Finding]:
    """How far each of them is. Nothing to say where none is drained."""
    try:
        async with open_pipeline(settings) as pipe:
            drained = await drained_now(pipe)
    except (PipelineError, OSError) as error:
        return [fail("drained servers", f"cannot be read: {type(error).__name__}", "see the checks above")]
    fix = "see `keyturn redis list`; `keyturn redis undrain NAME` lets it have its keys back"
    return [warn(f"redis {server.name}", f"is drained, and {server.verdict}", fix) for server in drained]

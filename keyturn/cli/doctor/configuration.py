"""What the settings say: the agent, the secrets, the packages, the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from keyturn.cli.deployment import sqlite_file
from keyturn.cli.doctor.exposure import check_exposure
from keyturn.cli.doctor.finding import Finding, fail, ok, version_tuple, warn
from keyturn.cli.doctor.platforms import check_platforms
from shared.embedded import running
from shared.errors import ConfigurationError
from shared.settings import Settings

RQ_FROM, RQ_BEFORE = (2, 12), (3,)
DISK_FAIL_BYTES, DISK_WARN_BYTES = 100 * 2**20, 2**30


def check_configuration(settings: Settings) -> Iterator[Finding]:
    yield rq_version(version("rq"))
    yield _agent(settings)
    yield from check_platforms(settings)
    yield from check_exposure(settings)
    places = {settings.data_dir}
    if (file := sqlite_file(settings)) is not None:
        places.add(file.parent)
    for place in sorted(places):
        yield _disk(place)


def rq_version(found: str) -> Finding:
    if RQ_FROM <= version_tuple(found) < RQ_BEFORE:
        return ok("rq version", found)
    return fail("rq version", f"{found} is not supported", "install rq>=2.12,<3")


def disk_space(place: Path, free_bytes: int) -> Finding:
    detail = f"{free_bytes / 2**30:.1f} GiB free at {place}"
    fix = "free some space or move KEYTURN_DATA_DIR: a full disk stops every commit"
    if free_bytes < DISK_FAIL_BYTES:
        return fail("disk", detail, fix)
    return warn("disk", detail, fix) if free_bytes < DISK_WARN_BYTES else ok("disk", detail)


def _disk(place: Path) -> Finding:
    existing = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    return disk_space(place, shutil.disk_usage(existing).free)


def _agent(settings: Settings) -> Finding:
    """The agent of the `up` that runs here, else the one that these settings name."""
    from workers.agents.resolve import resolve

    here = running.find(settings.data_dir)
    if here is not None:
        settings = settings.model_copy(update={"agent": here.agent})
    fix = "set KEYTURN_AGENT to echo, llm, local, command, http or module:object, with the module in this directory or installed"
    try:
        resolve(settings.agent, settings)
    except ConfigurationError as error:
        return fail("agent", str(error), fix)
    return ok("agent", settings.agent if here is None else f"{settings.agent}, running here (pid {here.pid})")

"""How other commands find what `keyturn up` started in this directory."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import SecretStr

from shared.settings import Settings
from shared.value import value


@value
class Running:
    pid: int
    url: str
    redis_url: str
    database: str
    partitions: int
    durability: str


def _file(data_dir: Path) -> Path:
    return data_dir / "up.json"


def announce(data_dir: Path, running: Running) -> None:
    """Write it down for this user only: the URL holds a password."""
    path = _file(data_dir)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(orjson.dumps(asdict(running)))


def withdraw(data_dir: Path) -> None:
    _file(data_dir).unlink(missing_ok=True)


def find(data_dir: Path) -> Running | None:
    """What runs here now, if anything does."""
    try:
        running = Running(**orjson.loads(_file(data_dir).read_bytes()))
        os.kill(running.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return running


def joined(settings: Settings) -> Settings:
    """The settings, pointed at the servers of a running `up` where none are named."""
    if settings.redis_url is not None:
        return settings
    running = find(settings.data_dir)
    if running is None:
        return settings
    update = {
        "redis_url": SecretStr(running.redis_url),
        "database_url": SecretStr(running.database),
        "partitions": running.partitions,
        "durability": running.durability,
    }
    return settings.model_copy(update=update)

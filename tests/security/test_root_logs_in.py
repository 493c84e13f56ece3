"""A service has DATA_DIR under a user of its own, and root runs commands on it: what root leaves there is the service's.

Where these tests run without root's rights, root and the service are the same user, and the logins must work all the same.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from keyturn.dashboard.access import LoginFiles, Role
from shared.redaction import open_redaction
from shared.settings import Settings

AS_ROOT = os.geteuid() == 0
SERVICE = (65534, 65534) if AS_ROOT else (os.geteuid(), os.getegid())
# What the service does, in a process of its own: imports first, for it may not be able to read this checkout.
EXCHANGE = """
import os, sys
from pathlib import Path
from keyturn.dashboard.access import LoginFiles, Role
user, group, home, token = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(group); os.setuid(user)
logins = LoginFiles(home)
login = logins.exchange(token)
assert login is not None, "the token of root is of no use"
assert logins.find(login.secret) is not None
logins.end(login.secret)
assert logins.find(login.secret) is None
assert logins.exchange(logins.make_token("service", Role.VIEW)) is not None
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """DATA_DIR of a service, where nobody else can look into it. Beneath pytest's own directories only root could."""
    with TemporaryDirectory() as directory:
        if AS_ROOT:
            os.chown(directory, *SERVICE)
        yield Path(directory)


def owners(home: Path) -> set[tuple[int, int]]:
    return {(path.stat().st_uid, path.stat().st_gid) for path in home.rglob("*")}


def exchange(home: Path, token: str) -> None:
    command = [sys.executable, "-c", EXCHANGE, *map(str, SERVICE), str(home), token]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_a_link_that_root_made_logs_in_to_the_dashboard_of_another_user(home: Path) -> None:
    token = LoginFiles(home).make_token("ann", Role.ADMIN)
    assert owners(home) == {SERVICE}
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")} == {0o700, 0o600}
    exchange(home, token)


def test_a_directory_that_root_made_before_is_given_to_the_service_with_the_next_link(home: Path) -> None:
    (home / "dashboard").mkdir(mode=0o755)
    exchange(home, LoginFiles(home).make_token("ann", Role.ADMIN))
    assert stat.S_IMODE((home / "dashboard").stat().st_mode) == 0o700


def test_root_gives_nothing_away_that_the_service_only_points_at(home: Path, tmp_path: Path) -> None:
    before = tmp_path.stat()
    (home / "dashboard").symlink_to(tmp_path)
    LoginFiles(home).make_token("ann", Role.ADMIN)
    assert (tmp_path.stat().st_uid, tmp_path.stat().st_gid) == (before.st_uid, before.st_gid)
    assert owners(tmp_path) == {(before.st_uid, before.st_gid)}


def test_a_redaction_key_that_root_made_can_be_read_by_the_service(home: Path) -> None:
    assert open_redaction(Settings.model_construct(redact_pii=True, redact_key=None, data_dir=home)) is not None
    assert owners(home) == {SERVICE}
    assert stat.S_IMODE((home / "redaction.key").stat().st_mode) == 0o600
